/**
 * Passkeys: the browser's half. What the authenticator's PRF gives is the secret that opens the account's key; it goes to
 * this machine's own server in a field of its own, never inside the credential.
 */
import { LoginState, PasskeyOptions } from "../api/login_contract";
import { post } from "../api/http";

/** Something on this device or in this browser that the person can do something about. */
export class CeremonyError extends Error {
  override name = "CeremonyError";
}

interface Prf {
  readonly eval: { readonly first: string };
}

export function passkeyHindrance(): string | null {
  if (!window.isSecureContext) return "Passkeys work only at http://localhost or over https; open the page there.";
  if (typeof window.PublicKeyCredential?.parseCreationOptionsFromJSON !== "function") return "This browser is too old for passkeys.";
  return null;
}

export async function claimByPasskey(code: string): Promise<LoginState> {
  const { ticket, options } = await post("/api/claim/passkey/options", { code }, PasskeyOptions);
  const { plain, prf } = withoutExtensions(options);
  const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(plain as unknown as PublicKeyCredentialCreationOptionsJSON);
  publicKey.extensions = extensionsOf(prf);
  const made = await ceremony(() => navigator.credentials.create({ publicKey }));
  const secret = secretOf(made) ?? (await askedAgain(made, publicKey.rp.id, prf));
  return post("/api/claim/passkey/verify", { ticket, credential: stripped(made), prf: secret }, LoginState);
}

export async function loginByPasskey(): Promise<LoginState> {
  const { ticket, options } = await post("/api/login/passkey/options", {}, PasskeyOptions);
  const { plain, prf } = withoutExtensions(options);
  const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(plain as unknown as PublicKeyCredentialRequestOptionsJSON);
  publicKey.extensions = extensionsOf(prf);
  const given = await ceremony(() => navigator.credentials.get({ publicKey }));
  return post("/api/login/passkey/verify", { ticket, credential: stripped(given), prf: secretOf(given) }, LoginState);
}

/** Many authenticators give the secret only when the passkey is used, not when it is made. Nothing but the secret is taken from this. */
async function askedAgain(made: PublicKeyCredential, rpId: string | undefined, prf: Prf): Promise<string | null> {
  if (made.getClientExtensionResults().prf?.enabled === false) return null;
  const publicKey: PublicKeyCredentialRequestOptions = {
    challenge: crypto.getRandomValues(new Uint8Array(32)),
    allowCredentials: [{ type: "public-key", id: made.rawId }],
    userVerification: "required",
    extensions: extensionsOf(prf),
    ...(rpId === undefined ? {} : { rpId }),
  };
  return secretOf(await ceremony(() => navigator.credentials.get({ publicKey })));
}

/** The PRF input is set by hand: not every browser's parser knows the extension. */
function withoutExtensions(options: Record<string, unknown>): { plain: Record<string, unknown>; prf: Prf } {
  const { extensions, ...plain } = options;
  const prf = (extensions as { prf?: Prf } | undefined)?.prf;
  if (typeof prf?.eval?.first !== "string") throw new CeremonyError("the server did not ask the passkey for its secret; update the node");
  return { plain, prf };
}

const extensionsOf = (prf: Prf): AuthenticationExtensionsClientInputs => ({ prf: { eval: { first: decoded(prf.eval.first) } } });

function secretOf(credential: PublicKeyCredential): string | null {
  const first = credential.getClientExtensionResults().prf?.results?.first;
  if (first === undefined) return null;
  return encoded(first instanceof ArrayBuffer ? new Uint8Array(first) : new Uint8Array(first.buffer, first.byteOffset, first.byteLength));
}

function stripped(credential: PublicKeyCredential): object {
  const { clientExtensionResults: _, ...rest } = credential.toJSON() as { clientExtensionResults?: unknown };
  return { ...rest, clientExtensionResults: {} };
}

async function ceremony(start: () => Promise<Credential | null>): Promise<PublicKeyCredential> {
  let credential: Credential | null;
  try {
    credential = await start();
  } catch (error) {
    throw error instanceof DOMException ? new CeremonyError(cause(error)) : error;
  }
  if (!(credential instanceof PublicKeyCredential)) throw new CeremonyError("the browser gave no passkey; try again");
  return credential;
}

function cause(error: DOMException): string {
  switch (error.name) {
    case "NotAllowedError":
      return "It was cancelled, took too long, or this device could not verify you. Try again, or use a passphrase.";
    case "InvalidStateError":
      return "This authenticator already holds a passkey for this node. Log in with it, or remove it first.";
    case "NotSupportedError":
    case "ConstraintError":
      return "This device cannot make a passkey with a finger, a face or a PIN. Use a passphrase.";
    case "SecurityError":
      return "The browser allows passkeys only at http://localhost or over https; open the page there.";
    default:
      return `The browser says: ${error.message || error.name}`;
  }
}

function decoded(base64url: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(base64url.replace(/-/g, "+").replace(/_/g, "/")), (character) => character.charCodeAt(0));
}

function encoded(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes))
    .replace(/\+/g, "-")
    .replace(/\//g, "_")
    .replace(/=+$/, "");
}
