/** How the run went: exams, reward, and what says whether training is in order. */
import type { Series } from "../api/check";
import type { ExamView, RunView } from "../api/contract";
import { LineChart } from "../charts/linechart";
import { examSeries, type Line } from "../charts/series";
import type { Axis } from "../charts/setup";
import { ChartControls } from "../charts/view";
import { Term } from "../parts/term";
import { decimal, percent } from "../text/format";
import { axesOf, latestOf, seriesOf } from "./axes";

const NEXT = "Appears with the first iteration.";

export function Curves({ view }: { view: RunView }) {
  const axes = axesOf(view);
  const reward = seriesOf(view, "reward");
  const loss = seriesOf(view, "loss");
  const entropy = seriesOf(view, "entropy");
  const spread = seriesOf(view, "zero_spread_share");
  return (
    <section aria-labelledby="curves">
      <h2 id="curves">How it goes</h2>
      <p className="note">Pale lines are as measured, strong ones are their trend.</p>
      <ChartControls />
      <Exams exams={view.exams} axis={axes.share} />
      <div className="grid">
        <LineChart
          title={<Term of="reward">Reward</Term>}
          now={decimal(latestOf(view, "reward"))}
          note="Mean of an iteration's attempts: what the solver is trained on."
          lines={[{ label: "reward", points: reward, tone: "judged", noisy: true }]}
          axis={axes.reward}
          empty={NEXT}
        />
        <LineChart
          title={<Term of="entropy">Entropy</Term>}
          now={decimal(latestOf(view, "entropy"))}
          note="How undecided the solver is, in nats a token."
          lines={[{ label: "entropy", points: entropy, tone: "plain", noisy: true }]}
          axis={axes.free}
          empty={NEXT}
        />
        <LineChart
          title={<Term of="loss">Loss</Term>}
          now={decimal(latestOf(view, "loss"), 4)}
          note="Around zero is as it should be."
          lines={[{ label: "loss", points: loss, tone: "plain", noisy: true }]}
          axis={axes.free}
          empty={NEXT}
        />
        <LineChart
          title={<Term of="spread">Groups without spread</Term>}
          now={percent(latestOf(view, "zero_spread_share"), 0)}
          note="Share of groups that teach nothing."
          lines={[{ label: "groups without spread", points: spread, tone: "plain", noisy: true }]}
          axis={axes.share}
          empty={NEXT}
        />
      </div>
    </section>
  );
}

function Exams({ exams, axis }: { exams: readonly ExamView[]; axis: Axis }) {
  const last = exams.at(-1);
  const k = last?.samples ?? "k";
  return (
    <LineChart
      tall
      title="Exams on held-out problems"
      now={last === undefined ? undefined : percent(last.average)}
      note={
        <>
          <Term of="executed">Executed</Term> is what is true, <Term of="judged">judged</Term> is what the judge believes of the same attempts;{" "}
          <Term of="average">average@{k}</Term> counts attempts, <Term of="pass">pass@{k}</Term> problems.
        </>
      }
      lines={examLines(exams)}
      axis={axis}
      empty="No exam yet. The first is held with the first iterations, then one every evals.every iterations."
    />
  );
}

/** Exams that were only judged are no truth: their average belongs to the judge's line. */
function examLines(exams: readonly ExamView[]): Line[] {
  const true_ = exams.filter((exam) => exam.source !== "judged");
  const believed = exams.map((exam) => (exam.source === "judged" ? { ...exam, believed: exam.believed ?? exam.average } : exam));
  const k = exams.at(-1)?.samples ?? 8;
  const band = (low: Series, high: Series) => (low.length === 0 ? {} : { band: { low, high } });
  return [
    {
      label: `executed average@${k}`,
      points: examSeries(true_, "average"),
      tone: "truth",
      marked: true,
      ...band(examSeries(true_, "low"), examSeries(true_, "high")),
    },
    { label: `judged average@${k}`, points: examSeries(believed, "believed"), tone: "judged", dashed: true, marked: true },
    {
      label: `pass@${k}`,
      points: examSeries(true_, "passed"),
      tone: "pass",
      marked: true,
      ...band(examSeries(true_, "pass_low"), examSeries(true_, "pass_high")),
    },
  ];
}
