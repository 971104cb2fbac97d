/** What the log-in routes send, as in codezero/login/login.py and routes.py. The options of WebAuthn are checked by the browser itself. */
import { type Check, type Checked, flag, list, maybe, number, object, oneOf, text } from "./check";

export const METHODS = ["passkey", "passphrase"] as const;
export type Method = (typeof METHODS)[number];

export const LoginState = object({
  claimed: flag,
  methods: list(oneOf(...METHODS)),
  method: maybe(oneOf(...METHODS)),
  logged_in: flag,
  unlocked: flag,
  address: maybe(text),
  expires: maybe(number),
  chain_id: maybe(number),
});
export type Session = Checked<typeof LoginState>;

const anyObject: Check<Record<string, unknown>> = (value, path) => {
  object({})(value, path);
  return value as Record<string, unknown>;
};

export const PasskeyOptions = object({ ticket: text, options: anyObject });
export type PasskeyOptions = Checked<typeof PasskeyOptions>;
