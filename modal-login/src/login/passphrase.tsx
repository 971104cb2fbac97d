/** A passphrase, typed once or twice. */
import { useId, useState } from "react";

import { LoginState } from "../api/login_contract";
import { post } from "../api/http";
import { Ask } from "./ask";

const LEAST = 10;
const MOST_BYTES = 1024;

interface Props {
  readonly onSession: (session: LoginState) => void;
  /** For claiming: the code, or why it is missing. Without it: log in. */
  readonly claim?: { readonly code: string; readonly hindrance: string | null };
}

export function PassphraseForm({ onSession, claim }: Props) {
  const [passphrase, setPassphrase] = useState("");
  const [again, setAgain] = useState("");
  const login = () => post("/api/login/passphrase", { passphrase }, LoginState);
  if (claim === undefined) {
    return (
      <Ask action="Log in" doing="Opening the key…" run={login} onSession={onSession} primary hindrance={passphrase === "" ? "Type the passphrase first." : null}>
        <UserName />
        <Secret label="Passphrase" value={passphrase} onChange={setPassphrase} complete="current-password" />
      </Ask>
    );
  }
  const hindrance = claim.hindrance ?? weakness(passphrase, again);
  const take = () => post("/api/claim/passphrase", { code: claim.code, passphrase }, LoginState);
  return (
    <Ask action="Claim with a passphrase" doing="Encrypting the key…" run={take} onSession={onSession} hindrance={hindrance}>
      <UserName />
      <Secret label={`Passphrase, at least ${LEAST} characters`} value={passphrase} onChange={setPassphrase} complete="new-password" />
      <Secret label="The same again" value={again} onChange={setAgain} complete="new-password" />
    </Ask>
  );
}

export function weakness(passphrase: string, again: string): string | null {
  if ([...passphrase].length < LEAST) return `The passphrase needs ${LEAST} characters or more; several words are best.`;
  if (new TextEncoder().encode(passphrase).length > MOST_BYTES) return `The passphrase may have at most ${MOST_BYTES} bytes.`;
  return passphrase === again ? null : "The two are not the same yet.";
}

/** Password managers file the passphrase under it. */
function UserName() {
  return <input type="text" autoComplete="username" value="codezero node" readOnly hidden />;
}

interface SecretProps {
  readonly label: string;
  readonly value: string;
  readonly onChange: (value: string) => void;
  readonly complete: "current-password" | "new-password";
}

function Secret({ label, value, onChange, complete }: SecretProps) {
  const id = useId();
  const [shown, setShown] = useState(false);
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <div className="with-button">
        <input
          id={id}
          type={shown ? "text" : "password"}
          autoComplete={complete}
          spellCheck={false}
          value={value}
          onChange={(event) => onChange(event.target.value)}
        />
        <button type="button" className="quiet" aria-pressed={shown} onClick={() => setShown(!shown)}>
          {shown ? "Hide" : "Show"}
        </button>
      </div>
    </div>
  );
}
