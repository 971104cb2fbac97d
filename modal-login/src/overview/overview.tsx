/** The dashboard: everything of a run but for its attempts and the leaderboard. */
import { useMemo } from "react";

import type { RunView } from "../api/contract";
import type { Link } from "../api/live";
import { Boundary } from "../boundary";
import { Charts } from "../charts/view";
import { System } from "../details/system";
import { Tabs } from "../details/tabs";
import { Counting } from "./counting";
import { Curves } from "./curves";
import { Difficulty } from "./difficulty";
import { ForeignLine } from "../parts/foreign";
import { Notice } from "../parts/notice";
import { Answer, Figures, Head } from "./head";
import { Judge } from "./judge";
import { Peers } from "./peers";

function TakeHome({ run }: { run: string }) {
  return (
    <p className="note">
      Take it home:{" "}
      <code>
        codezero export <ForeignLine text={run.replaceAll("~", "/")} limit={60} /> --merged DIR
      </code>
      , or <code>--adapter</code>, <code>--gguf</code>, <code>--ollama</code>.
    </p>
  );
}

export function Overview({ view, link, page }: { view: RunView; link: Link; page: "overview" | "system" }) {
  const runs = useMemo(() => new Map([[view.run, view.series]]), [view]);
  const sections = page === "system" ? [System] : [Curves, Judge, Difficulty, Peers, Counting];
  return (
    <Charts runs={runs} ended={!view.running}>
      <Head view={view} link={link} />
      {[view.stand_ins, view.hindrance].filter(Boolean).map((text) => (
        <Notice key={text} tone="alarm" role="status">
          <ForeignLine text={text} limit={800} />
        </Notice>
      ))}
      {page === "overview" && <Answer exams={view.exams} ended={!view.running} />}
      {page === "overview" && <Figures view={view} />}
      {page === "overview" &&
        [view.best, view.attempts].filter(Boolean).map((text) => (
          <p key={text} className="note">
            <ForeignLine text={text} limit={400} />
          </p>
        ))}
      {page === "overview" && (view.iteration ?? 0) > 0 && <TakeHome run={view.run} />}
      <Tabs run={view.run} page={page} />
      {sections.map((Section, index) => (
        <Boundary key={index}>
          <Section view={view} />
        </Boundary>
      ))}
    </Charts>
  );
}
