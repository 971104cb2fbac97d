/** Written by scripts/page_contract.py from the types of the server; null means not measured, or unknown. */
import { type Checked, anyObject, flag, list, maybe, number, object, oneOf, text } from "./check";

export const LoginState = object({
  claimed: flag,
  methods: list(oneOf("passkey", "passphrase")),
  method: maybe(oneOf("passkey", "passphrase")),
  logged_in: flag,
  unlocked: flag,
  address: maybe(text),
  expires: maybe(number),
  chain_id: maybe(number),
});
export type LoginState = Checked<typeof LoginState>;

export const PasskeyOptions = object({
  ticket: text,
  options: anyObject,
});
export type PasskeyOptions = Checked<typeof PasskeyOptions>;
