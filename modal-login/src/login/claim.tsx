/** The first claim: the code from the terminal, and one of two ways to protect the account's key. */
import { type ReactNode, useId, useState } from "react";

import type { LoginState } from "../api/login_contract";
import { Copyable } from "../parts/copy";
import { Term } from "../parts/term";
import { Ask } from "./ask";
import { claimByPasskey, passkeyHindrance } from "./passkey";
import { PassphraseForm } from "./passphrase";

const CODE = /^\d{4}-\d{4}$/;

/** As it is printed, `1234-5678`, however it is typed. */
export function groupedCode(typed: string): string {
  const digits = typed.replace(/\D/g, "").slice(0, 8);
  return digits.length > 4 ? `${digits.slice(0, 4)}-${digits.slice(4)}` : digits;
}

export function ClaimPage({ session, onSession }: { session: LoginState; onSession: (session: LoginState) => void }) {
  const [code, setCode] = useState("");
  const missing = CODE.test(code) ? null : "Type the code from the terminal first.";
  return (
    <div className="narrow">
      <h1 tabIndex={-1}>Claim this node</h1>
      <p className="lead">
        The node trains without this. Claiming makes it yours: its account's key is encrypted so that only you can open it, and this page is shown to
        nobody else. Everything stays on this machine; no account anywhere is needed.
      </p>
      {session.address !== null && (
        <p className="note">
          The account that it uses now is kept: <Copyable value={session.address} label="the account's address" />
        </p>
      )}
      <CodeField code={code} onCode={setCode} />
      <h2>How will you prove that it is you?</h2>
      {session.methods.includes("passkey") && (
        <Way
          name={
            <>
              <Term of="passkey">Passkey</Term> <span className="tag">recommended</span>
            </>
          }
          what="Your device asks for a finger, a face or a PIN. The key on disk opens only with a secret that your authenticator keeps; there is nothing to remember and nothing to steal. Lose the passkey, and the key is lost with it."
        >
          <Ask
            primary
            action="Claim with a passkey"
            doing="Waiting for your device…"
            run={() => claimByPasskey(code)}
            onSession={onSession}
            hindrance={missing ?? passkeyHindrance()}
          />
        </Way>
      )}
      {session.methods.includes("passphrase") && (
        <Way
          name="Passphrase"
          what="The key on disk is encrypted with your words. It works in every browser and without one, and it is as strong as the words are. Nobody can restore it."
        >
          <PassphraseForm claim={{ code, hindrance: missing }} onSession={onSession} />
        </Way>
      )}
    </div>
  );
}

function CodeField({ code, onCode }: { code: string; onCode: (code: string) => void }) {
  const id = useId();
  return (
    <div className="field card code-field">
      <label htmlFor={id}>Code from the terminal</label>
      <input
        id={id}
        className="code"
        inputMode="numeric"
        autoComplete="one-time-code"
        placeholder="1234-5678"
        size={11}
        maxLength={16}
        value={code}
        onChange={(event) => onCode(groupedCode(event.target.value))}
        aria-describedby={`${id}-note`}
      />
      <p className="note" id={`${id}-note`}>
        Eight digits, printed when the node starts; <code>codezero login</code> prints one, too. It is good for one claim and changes after five wrong
        tries.
      </p>
    </div>
  );
}

function Way({ name, what, children }: { name: ReactNode; what: string; children: ReactNode }) {
  const heading = useId();
  return (
    <section className="way card" aria-labelledby={heading}>
      <h3 id={heading}>{name}</h3>
      <p className="what">{what}</p>
      {children}
    </section>
  );
}
