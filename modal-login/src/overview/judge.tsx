/** How far the judge can be believed. */
import { type ReactNode, useEffect, useState } from "react";

import type { RunView } from "../api/contract";
import { LineChart } from "../charts/linechart";
import { ForeignLine } from "../parts/foreign";
import { Notice } from "../parts/notice";
import { Term } from "../parts/term";
import { decimal, interval, percent, whole } from "../text/format";
import { axesOf, latestOf, seriesOf } from "./axes";

export function Judge({ view }: { view: RunView }) {
  const axes = axesOf(view);
  const auroc = seriesOf(view, "judge_auroc");
  const within = seriesOf(view, "judge_within_auroc");
  const fooled = seriesOf(view, "judge_false_positive_share");
  return (
    <Fold view={view}>
      {view.judge.alarm !== "" && (
        <Notice tone="alarm">
          <strong>Alarm:</strong> <ForeignLine text={view.judge.alarm} />
        </Notice>
      )}
      <Belief view={view} />
      <div className="grid">
        <LineChart
          title={
            <>
              <Term of="auroc">AUROC</Term> of the judge
            </>
          }
          now={decimal(latestOf(view, "judge_within_auroc") ?? latestOf(view, "judge_auroc"))}
          note="0.5 is a coin, 1 is always right."
          lines={[
            { label: "within groups", points: within, tone: "truth", noisy: true },
            { label: "over problems", points: auroc, tone: "judged", noisy: true },
          ]}
          axis={axes.auroc([...auroc, ...within])}
          empty="Appears with the first calibration."
        />
        <LineChart
          title={<Term of="falsePositive">False positives</Term>}
          now={percent(latestOf(view, "judge_false_positive_share"), 0)}
          note="Share of known wrong programs that it believes."
          lines={[{ label: "false positives", points: fooled, tone: "alarm", noisy: true }]}
          axis={axes.small(fooled)}
          empty="Appears when enough canaries have been judged."
        />
      </div>
    </Fold>
  );
}

/** One line while all is well; open from the first on when it is not. What is inside is drawn when it is open. */
function Fold({ view, children }: { view: RunView; children: ReactNode }) {
  const { judge } = view;
  const within = latestOf(view, "judge_within_auroc");
  const ill = judge.alarm !== "" || judge.weight === 0;
  const [open, setOpen] = useState(ill);
  useEffect(() => setOpen(ill), [ill]);
  const known = judge.auroc === null ? "not measured yet" : `AUROC ${within === null ? "" : `${decimal(within)} within groups, `}${decimal(judge.auroc)} over problems, ${percent(judge.false_positive_share)} false positives`;
  return (
    <section aria-labelledby="judge">
      <details className="fold" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>
          <h2 id="judge">Can the judge be believed?</h2>{" "}
          <span className="muted">
            {ill ? "No: look here" : judge.auroc === null ? "" : "Yes"} · {known}
          </span>
        </summary>
        {open && children}
      </details>
    </section>
  );
}

function Belief({ view }: { view: RunView }) {
  const { judge } = view;
  const lower = judge.auroc_low === null ? "" : `at least ${decimal(judge.auroc_low)}`;
  const within = latestOf(view, "judge_within_auroc");
  const [low, high] = [latestOf(view, "judge_within_auroc_low"), latestOf(view, "judge_within_auroc_high")];
  return (
    <dl className="figures card five">
      <div>
        <dt>
          <Term of="within">AUROC within groups</Term>
        </dt>
        <dd>
          {decimal(within)} <small>{within === null ? "" : `${decimal(low)} to ${decimal(high)}`}</small>
        </dd>
      </div>
      <div>
        <dt>
          <Term of="auroc">AUROC over problems</Term>
        </dt>
        <dd>
          {decimal(judge.auroc)} <small>{lower}</small>
        </dd>
      </div>
      <div>
        <dt>
          <Term of="falsePositive">false positives</Term>
        </dt>
        <dd>
          {percent(judge.false_positive_share)} <small>{interval(judge.false_positive_low, judge.false_positive_high)}</small>
        </dd>
      </div>
      <div>
        <dt>right ones missed</dt>
        <dd>{percent(judge.false_negative_share)}</dd>
      </div>
      <div>
        <dt>
          <Term of="trustworthy">weight</Term>, <Term of="canary">canaries</Term>
        </dt>
        <dd>
          {decimal(judge.weight)} <small>{judge.canaries === null ? "" : `${whole(judge.canaries)} canaries`}</small>
        </dd>
      </div>
    </dl>
  );
}
