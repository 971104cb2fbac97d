/** How hard the problems are, and what is believed of each level. */
import type { LevelSkill, RunView } from "../api/contract";
import { LineChart } from "../charts/linechart";
import type { Line, Tone } from "../charts/series";
import { Interval } from "../parts/bars";
import { NotYet } from "../parts/notice";
import { Term } from "../parts/term";
import { interval, percent } from "../text/format";
import { axesOf, seriesOf } from "./axes";

const TONES: readonly Tone[] = ["l1", "l2", "l3", "l4", "l5"];

export function Difficulty({ view }: { view: RunView }) {
  const axes = axesOf(view);
  const success = TONES.map((tone, index): Line => ({ label: `level ${index + 1}`, points: seriesOf(view, `success_${index + 1}`), tone }));
  return (
    <section aria-labelledby="difficulty">
      <h2 id="difficulty">How hard are the problems?</h2>
      <div className="grid">
        <LineChart
          title={<Term of="level">Level</Term>}
          now={view.level ?? "–"}
          note="It follows what the solver can do."
          lines={[{ label: "level", points: seriesOf(view, "level"), tone: "plain", stepped: true }]}
          axis={axes.level}
          empty="Appears with the first iteration."
        />
        <Skills skills={view.difficulty} />
        <LineChart
          wide
          title={
            <>
              Success at each level (<Term of="posterior">posterior mean</Term>)
            </>
          }
          lines={success}
          axis={axes.share}
          empty="Appears when attempts at a level have been judged."
        />
      </div>
    </section>
  );
}

function Skills({ skills }: { skills: readonly LevelSkill[] }) {
  return (
    <div className="card skills">
      <h3>What it can do now, by level</h3>
      <p className="note">
        <Term of="posterior">Posterior</Term> mean, its <Term of="interval">interval</Term>, and how often the level is{" "}
        <Term of="weight">asked for next</Term>.
      </p>
      {skills.length === 0 ? (
        <NotYet>Appears when attempts at a level have been judged.</NotYet>
      ) : (
        <ul>
          {skills.map((skill) => (
            <li key={skill.level}>
              <span className="name">level {skill.level}</span>
              <Interval mean={skill.mean} low={skill.low} high={skill.high} className={`tone-l${skill.level}`} />
              <span className="value">
                {percent(skill.mean, 0)} <small>{interval(skill.low, skill.high)}</small>
              </span>
              <span className="asked">
                <span className="unseen">asked for next: </span>
                {percent(skill.weight, 0)}
              </span>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
