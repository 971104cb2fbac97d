#!/usr/bin/env bash
# Three laptops found and join a swarm. Here all three are folders on one machine; each has keys, runs and logs of its own.
#
#     examples/three_laptops.sh FOLDER            # an empty folder; ITERATIONS=20 trains longer, PORT=38332 is another port
#
# On real machines the founder adds swarm.host=0.0.0.0 and a --p2p-port that the others reach; see docs/swarm.md.
set -euo pipefail
(($#)) || { echo "usage: examples/three_laptops.sh FOLDER [KEY=VALUE ...]: name a folder for keys, runs and logs" >&2; exit 2; }
folder=$(mkdir -p "$1" && cd "$1" && pwd)
shift
codezero=${CODEZERO:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/.venv/bin/codezero}
settings=(run.name=laptop chain.submit_after=2 monitor.view=plain login.page=off "$@")

end=run.max_iterations=${ITERATIONS:-10}
nodes=()
trap 'kill "${nodes[@]}" 2>/dev/null; wait' EXIT
laptop() { # NAME COMMAND...: in a folder of its own
  mkdir -p "$folder/$1" && cd "$folder/$1"
  exec "$codezero" "${@:2}" "${settings[@]}" >output.log 2>&1
}

laptop ada swarm create --p2p-port "${PORT:-38331}" & # the founder goes on until the others have finished
nodes+=($!)
code=
until code=$(grep -oE 'cz1[1-9A-HJ-NP-Za-km-z]+' "$folder/ada/output.log" 2>/dev/null | head -1) && [[ -n $code ]]; do
  kill -0 "${nodes[0]}" || { cat "$folder/ada/output.log"; exit 1; }
  sleep 1
done
echo "ada founded a swarm. The others need nothing but its code: $code"

laptop bob swarm join "$code" "$end" &
nodes+=($!)
laptop eve swarm join "$code" "$end" &
nodes+=($!)
wait "${nodes[1]}" "${nodes[2]}"
for name in bob eve; do tail -n 4 "$folder/$name/output.log"; done
cd "$folder/ada"
"$codezero" leaderboard --invitation swarm.toml    # who earned what, read from the founder's chain
