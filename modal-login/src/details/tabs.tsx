/** What else is known of a run: its settings, what it uses, its log, its checkpoints; each behind a tab. */
import { useCallback, useState } from "react";

import type { SettingLine } from "../api/contract";
import { getCheckpoints, getLog, getSettings } from "../api/routes";
import { useEvery, useLoaded } from "../api/use";
import { Copyable } from "../parts/copy";
import { ForeignLine, ForeignText } from "../parts/foreign";
import { Empty, Trouble } from "../parts/notice";
import { Table } from "../parts/table";
import { formatRoute, type Plain } from "../route";
import { bytes, count, moment, whole } from "../text/format";

const TABS: readonly (readonly [Plain, string])[] = [
  ["overview", "Charts"],
  ["system", "System"],
  ["settings", "Config"],
  ["log", "Log"],
  ["checkpoints", "Checkpoints"],
];
const LOG_MS = 5_000;
const FEW_LINES = 200;

export function Tabs({ run, page }: { run: string | null; page: Plain }) {
  return (
    <nav className="filter" aria-label="About this run">
      {TABS.map(([name, title]) => (
        <a key={name} href={formatRoute({ page: name, run })} aria-current={name === page ? "page" : undefined}>
          {title}
        </a>
      ))}
    </nav>
  );
}

const SETTINGS = [
  { key: "key", title: "setting" },
  { key: "value", title: "value" },
  { key: "origin", title: "where it comes from" },
];

export function SettingsTab({ run }: { run: string }) {
  const { value, error, reload } = useLoaded(useCallback(() => getSettings(run), [run]));
  const [word, setWord] = useState("");
  const [every, setEvery] = useState(false);
  const fits = ({ key, origin }: SettingLine) => (every || word !== "" || origin !== "default") && key.includes(word.trim());
  if (value === null) return <Waiting error={error} reload={reload} />;
  if (value.settings.length === 0) return <Empty>This run has not written its settings: it was begun by an earlier version.</Empty>;
  const shown = value.settings.filter(fits);
  return (
    <>
      <div className="controls">
        <label>
          Find <input type="search" value={word} maxLength={60} onChange={(event) => setWord(event.target.value)} />
        </label>
        <label>
          <input type="checkbox" checked={every} onChange={(event) => setEvery(event.target.checked)} /> defaults, too
        </label>
      </div>
      <div className="card">
        <Table label="Settings" head={SETTINGS}>
          {shown.map(({ key, value, origin }) => (
            <tr key={key}>
              <th scope="row">
                <code>
                  <ForeignLine text={key} limit={80} />
                </code>
              </th>
              <td className="words">
                <code>
                  <ForeignLine text={value} limit={400} />
                </code>
              </td>
              <td>
                <ForeignLine text={origin} limit={120} />
              </td>
            </tr>
          ))}
        </Table>
        <p className="note">
          {shown.length} of {count(value.settings.length, "setting")}, as the newest start of this run read them.
        </p>
      </div>
    </>
  );
}

export function LogTab({ run }: { run: string }) {
  const { value, error, reload } = useLoaded(useCallback(() => getLog(run), [run]));
  const [follow, setFollow] = useState(true);
  const [all, setAll] = useState(false);
  useEvery(LOG_MS, () => follow && reload());
  if (value === null) return <Waiting error={error} reload={reload} />;
  if (value.path === "") return <Empty>There is no log where this page looks: in the run's own folder and in run.logs.</Empty>;
  const lines = value.text.trimEnd().split("\n");
  return (
    <>
      <div className="controls">
        <label>
          <input type="checkbox" checked={follow} onChange={(event) => setFollow(event.target.checked)} /> follow
        </label>
        {lines.length > FEW_LINES && (
          <button type="button" className="quiet" aria-pressed={all} onClick={() => setAll(!all)}>
            {all ? `The last ${FEW_LINES} lines` : `All ${lines.length} lines`}
          </button>
        )}
      </div>
      <div className="card">
        <ForeignText key={String(all)} text={(all ? lines : lines.slice(-FEW_LINES)).toReversed().join("\n")} code whole label="Log, newest line first" />
        <p className="note">
          Newest line first, of <ForeignLine text={value.path} />
          {value.cut && ", of which this is the end"}. Runs that were started in one folder share it.
        </p>
      </div>
    </>
  );
}

const CHECKPOINTS = [
  { key: "name", title: "checkpoint" },
  { key: "iteration", title: "iteration", numeric: true },
  { key: "size", title: "size", numeric: true },
  { key: "saved", title: "saved" },
  { key: "digest", title: "digest of its manifest" },
];

export function CheckpointsTab({ run }: { run: string }) {
  const { value, error, reload } = useLoaded(useCallback(() => getCheckpoints(run), [run]));
  if (value === null) return <Waiting error={error} reload={reload} />;
  if (value.checkpoints.length === 0) return <Empty>None has been saved. The first comes after run.checkpoint_seconds, and one at the end.</Empty>;
  return (
    <div className="card">
      <Table label="Checkpoints, newest first" head={CHECKPOINTS}>
        {value.checkpoints.map((line) => (
          <tr key={line.name}>
            <th scope="row">{line.name}</th>
            <td className="numeric">{whole(line.iteration)}</td>
            <td className="numeric">{bytes(line.size)}</td>
            <td>{moment(line.saved)}</td>
            <td className="words">
              {line.problem === "" ? (
                <Copyable value={line.digest} label={`the digest of ${line.name}`} />
              ) : (
                <>
                  <span className="tag alarm">cannot be used</span> <ForeignLine text={line.problem} limit={300} />
                </>
              )}
            </td>
          </tr>
        ))}
      </Table>
      <p className="note">A run goes on from the newest one that is whole. The manifest holds the SHA-256 of every file.</p>
    </div>
  );
}

function Waiting({ error, reload }: { error: unknown; reload: () => void }) {
  return error === null ? <Empty>Loading…</Empty> : <Trouble error={error} retry={reload} />;
}
