/** The only page of a claimed node for whoever is not logged in. */
import type { LoginState } from "../api/login_contract";
import { Ask } from "./ask";
import { loginByPasskey, passkeyHindrance } from "./passkey";
import { PassphraseForm } from "./passphrase";

export function LoginPage({ session, onSession }: { session: LoginState; onSession: (session: LoginState) => void }) {
  return (
    <div className="narrow">
      <h1 tabIndex={-1}>Log in</h1>
      <p className="lead">
        This node has an owner. Training goes on meanwhile
        {session.unlocked ? "." : "; but the account's key is locked, and points wait in the outbox until you log in."}
      </p>
      <div className="card">
        {session.method === "passkey" && (
          <Ask primary action="Log in with your passkey" doing="Waiting for your device…" run={loginByPasskey} onSession={onSession} hindrance={passkeyHindrance()} />
        )}
        {session.method === "passphrase" && <PassphraseForm onSession={onSession} />}
      </div>
      <p className="note">
        Lost it? Nobody can open the key without it, and its points stay where they are. To begin anew as another node, stop this one and move{" "}
        <code>runs/login</code> and <code>swarm.pem</code> away.
      </p>
    </div>
  );
}
