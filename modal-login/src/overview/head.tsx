/** Who this is, whether it runs, whether it learns. */
import type { ReactNode } from "react";

import type { ExamView, RunView } from "../api/contract";
import type { Link } from "../api/live";
import { useNow } from "../api/use";
import { Interval, LevelDots } from "../parts/bars";
import { Copyable } from "../parts/copy";
import { ForeignLine } from "../parts/foreign";
import { Announcer } from "../parts/notice";
import { Term } from "../parts/term";
import { decimal, duration, interval, percent, whole } from "../text/format";
import type { TermKey } from "../text/glossary";
import { headline, runState } from "./learning";

export function Head({ view, link }: { view: RunView; link: Link }) {
  const state = runState(view, link, useNow());
  return (
    <header className="head">
      <div>
        <h1 tabIndex={-1}>
          <ForeignLine text={view.name || view.run} limit={60} />
        </h1>
        <p className={`state ${state.tone}`}>
          <i className="lamp" aria-hidden="true" />
          {state.words}
        </p>
        <Announcer state={state.change} />
      </div>
      <dl className="identity">
        <div>
          <dt>run</dt>
          <dd>
            <ForeignLine text={view.run.replaceAll("~", "/")} limit={60} />
          </dd>
        </div>
        <div>
          <dt>
            <Term of="peerId">peer id</Term>
          </dt>
          <dd>{view.peer_id === "" ? "none" : <Copyable value={view.peer_id} label="the peer id" />}</dd>
        </div>
        <div>
          <dt>
            <Term of="account">account</Term>
          </dt>
          <dd>{view.account === "" ? "none" : <Copyable value={view.account} label="the account's address" />}</dd>
        </div>
      </dl>
    </header>
  );
}

export function Answer({ exams, ended }: { exams: readonly ExamView[]; ended: boolean }) {
  const { answer, sentence, basis, first, last } = headline(exams, ended);
  return (
    <section className="answer card" aria-labelledby="learns">
      <div>
        <h2 id="learns" className="eyebrow">
          {ended ? "Did it learn?" : "Does it learn?"}
        </h2>
        <p className="big">{answer}</p>
        <p className="sentence">{sentence}</p>
        {basis !== "" && (
          <p className="note">
            <Term of="average">{basis}</Term>
          </p>
        )}
      </div>
      {last !== null && (
        <div>
          <dl className="beforeafter">
            <ExamRow label={ended ? `at the end, iteration ${last.iteration}` : "now"} exam={last} className="after" />
            {first !== null && <ExamRow label={`iteration ${first.iteration}`} exam={first} className="before" />}
          </dl>
          {(last.cheats_share ?? 0) > 0 && <p className="note">{percent(last.cheats_share)} of the attempts pass tests that must fail. They count as wrong.</p>}
          {(last.unguarded_share ?? 0) > 0 && <p className="note">{percent(last.unguarded_share)} of the attempts pass tests that cannot find a cheat.</p>}
          <p className="note">
            Bars are the <Term of="interval">95 % intervals</Term>, from 0 to 100 %.
          </p>
        </div>
      )}
    </section>
  );
}

function ExamRow({ label, exam, className }: { label: string; exam: ExamView; className: string }) {
  return (
    <div className={className}>
      <dt>{label}</dt>
      <dd>
        <span className="figure">{percent(exam.average)}</span> <span className="muted">{interval(exam.low, exam.high)}</span>
        <Interval mean={exam.average} low={exam.low} high={exam.high} />
      </dd>
    </div>
  );
}

export function Figures({ view }: { view: RunView }) {
  return (
    <dl className="figures card">
      <Figure of="iteration" name="iteration" value={whole(view.iteration)} />
      <Figure of="round" name="round" value={whole(view.round)} />
      <Figure of="level" name="level" value={<Level level={view.level} />} />
      <Figure of="reward" name="reward" value={decimal(view.reward)} />
      <Figure name="an iteration takes" value={view.seconds_per_iteration === null ? "–" : duration(view.seconds_per_iteration)} />
      <Figure name="tokens a second" value={whole(view.tokens_per_second)} />
    </dl>
  );
}

function Level({ level }: { level: number | null }) {
  return (
    <>
      {level === null ? "–" : level} <LevelDots level={level} />
    </>
  );
}

function Figure({ of, name, value }: { of?: TermKey; name: string; value: ReactNode }) {
  return (
    <div>
      <dt>{of === undefined ? name : <Term of={of}>{name}</Term>}</dt>
      <dd>{value}</dd>
    </div>
  );
}
