/** The dashboard: everything of a run but for its attempts and the leaderboard. */
import type { RunView } from "../api/contract";
import type { Link } from "../api/live";
import { Boundary } from "../boundary";
import { Counting } from "./counting";
import { Curves } from "./curves";
import { Difficulty } from "./difficulty";
import { ForeignLine } from "../parts/foreign";
import { Notice } from "../parts/notice";
import { Answer, Figures, Head } from "./head";
import { Judge } from "./judge";
import { Peers } from "./peers";

export function Overview({ view, link }: { view: RunView; link: Link }) {
  return (
    <>
      <Head view={view} link={link} />
      {view.stand_ins !== "" && (
        <Notice tone="alarm" role="status">
          <ForeignLine text={view.stand_ins} limit={400} />
        </Notice>
      )}
      <Answer exams={view.exams} />
      <Figures view={view} />
      {[Curves, Judge, Difficulty, Peers, Counting].map((Section, index) => (
        <Boundary key={index}>
          <Section view={view} />
        </Boundary>
      ))}
    </>
  );
}
