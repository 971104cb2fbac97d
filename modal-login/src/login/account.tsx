/** Who is logged in, until when, and the two ways out. */
import type { ReactNode } from "react";

import { LoginState } from "../api/login_contract";
import { post } from "../api/http";
import { Copyable } from "../parts/copy";
import { Notice } from "../parts/notice";
import { moment } from "../text/format";
import { Ask } from "./ask";

const BY: Readonly<Record<string, string>> = { passkey: "a passkey", passphrase: "a passphrase" };

export function AccountPage({ session, onSession }: { session: LoginState; onSession: (session: LoginState) => void }) {
  return (
    <div className="narrow">
      <h1 tabIndex={-1}>Account</h1>
      {session.unlocked ? (
        <Notice tone="good">The node can sign: its points reach the chain.</Notice>
      ) : (
        <Notice tone="alarm">The node's key is locked. Training goes on; points wait in the outbox. Log out and in again to unlock it.</Notice>
      )}
      <dl className="rows card">
        <Row name="address">{session.address === null ? "not known" : <Copyable value={session.address} label="the address" />}</Row>
        <Row name="chain">{session.chain_id ?? "none"}</Row>
        <Row name="protected by">{BY[session.method ?? ""] ?? "nothing yet"}</Row>
        <Row name="logged in until">{session.expires === null ? "not known" : moment(session.expires)}</Row>
      </dl>
      <Out lock={false} action="Log out" onSession={onSession}>
        For this browser only. The node keeps its key open and goes on counting points.
      </Out>
      <Out lock action="Log out and lock" onSession={onSession}>
        For every browser; and the node forgets the open key. It goes on training, and points wait until the next log-in.
      </Out>
    </div>
  );
}

function Row({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Out({ lock, action, onSession, children }: { lock: boolean; action: string; onSession: (session: LoginState) => void; children: ReactNode }) {
  return (
    <section className="way card" aria-label={action}>
      <Ask action={action} doing="Logging out…" run={() => post("/api/logout", { lock }, LoginState)} onSession={onSession}>
        <p className="what">{children}</p>
      </Ask>
    </section>
  );
}
