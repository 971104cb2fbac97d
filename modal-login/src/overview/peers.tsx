/** The others: how many are heard, what they gave, whom this node keeps away from and why. */
import type { NetworkView, Peer, RunView } from "../api/contract";
import { useNow } from "../api/use";
import { LineChart } from "../charts/linechart";
import { Copyable } from "../parts/copy";
import { ForeignLine } from "../parts/foreign";
import { Empty, NotYet, Notice } from "../parts/notice";
import { Table } from "../parts/table";
import { Term } from "../parts/term";
import { EVERY, formatRoute } from "../route";
import { ago, decimal, percent, whole } from "../text/format";
import { visibleLine } from "../text/visible";
import { axesOf, seriesOf } from "./axes";

export function Peers({ view }: { view: RunView }) {
  const axes = axesOf(view);
  const alone = view.network === null && view.peers.length === 0;
  return (
    <section aria-labelledby="peers">
      <h2 id="peers">The others</h2>
      {alone ? (
        <div className="card">
          <Empty>
            This is a swarm of one: there are no peers. With <code>codezero swarm join swarm.toml</code> it learns from others, and they are listed here.
          </Empty>
        </div>
      ) : (
        <>
          {view.network !== null && <Reach network={view.network} running={view.running} />}
          <PeerTable run={view.run} peers={view.peers} />
          <div className="grid">
            <LineChart
              title={<Term of="peer">Peers heard</Term>}
              lines={[{ label: "peers heard", points: seriesOf(view, "peers"), tone: "truth", stepped: true }]}
              axis={axes.count}
              empty="Appears when the first rollouts of a peer arrive."
            />
            <LineChart
              title={<Term of="external">Rows from outside</Term>}
              lines={[{ label: "rows from outside", points: seriesOf(view, "external_share"), tone: "truth" }]}
              axis={axes.share}
              empty="Appears when a peer's attempts enter an update."
            />
          </div>
        </>
      )}
    </section>
  );
}

function Reach({ network, running }: { network: NetworkView; running: boolean }) {
  const tone = network.reachable === false ? "alarm" : "calm";
  return (
    <Notice tone={tone}>
      <strong>
        {whole(network.neighbours)} <Term of="neighbours">{network.neighbours === 1 ? "neighbour" : "neighbours"}</Term>
      </strong>{" "}
      {running ? "" : "when it ended "}· <ForeignLine text={network.reachability || (network.reachable === null ? "not known yet whether others can reach it" : "")} limit={400} />
      {network.addresses.length > 0 && (
        <details>
          <summary>Its addresses ({network.addresses.length})</summary>
          <ul className="addresses">
            {network.addresses.slice(0, 20).map((address) => (
              <li key={address}>
                <code>
                  <ForeignLine text={address} limit={300} />
                </code>
              </li>
            ))}
          </ul>
        </details>
      )}
    </Notice>
  );
}

const HEAD = [
  { key: "name", title: "peer" },
  { key: "seen", title: "last seen" },
  { key: "groups", title: "groups", numeric: true },
  { key: "judged", title: "judged", numeric: true },
  { key: "used", title: <Term of="used">used</Term>, numeric: true },
  { key: "penalty", title: <Term of="penalty">penalty</Term>, numeric: true },
  { key: "state", title: "state" },
] as const;

function PeerTable({ run, peers }: { run: string; peers: readonly Peer[] }) {
  const now = useNow();
  if (peers.length === 0) {
    return (
      <div className="card">
        <NotYet>No peer has been heard yet. Each one appears here with its first announcement.</NotYet>
      </div>
    );
  }
  return (
    <div className="card">
      <Table label="Peers" head={HEAD}>
        {peers.map((peer) => (
          <tr key={peer.peer_id}>
            <th scope="row">
              <a href={formatRoute({ page: "rollouts", run, ...EVERY, peer: peer.peer_id })}>
                <ForeignLine text={peer.name} limit={40} />
                <span className="unseen">: its rollouts</span>
              </a>
              <Copyable value={peer.peer_id} label={`the peer id of ${visibleLine(peer.name, 60)}`} />
            </th>
            <td>{ago(peer.last_seen, now)}</td>
            <td className="numeric">{whole(peer.groups)}</td>
            <td className="numeric">{whole(peer.judged)}</td>
            <td className="numeric">{percent(peer.share_used, 0)}</td>
            <td className="numeric">{decimal(peer.penalty)}</td>
            <td className="words">
              {peer.state === "ok" ? (
                "ok"
              ) : (
                <>
                  <span className="tag alarm">kept away</span> <ForeignLine text={peer.reason} />
                </>
              )}
            </td>
          </tr>
        ))}
      </Table>
    </div>
  );
}
