#!/usr/bin/env bash
# A swarm of one: train for some iterations, look at the run, and try something else from where it is.
#
#     examples/solo.sh                            # in the checkout, after ./run_swarm.sh has installed everything
#
# ITERATIONS=50 trains longer; further settings go to the node: examples/solo.sh seed=1
set -euo pipefail
codezero=${CODEZERO:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/.venv/bin/codezero}

"$codezero" run run.name=solo run.max_iterations="${ITERATIONS:-25}" "$@"
"$codezero" status run.name=solo                  # one page: step, truth, points and why not
"$codezero" run --fork solo run.name=solo-rlvr reward.mode=rlvr run.max_iterations="$((${ITERATIONS:-25} * 2))" "$@"
echo "reports: runs/solo/report.md (rewarded by the judge), runs/solo-rlvr/report.md (goes on with execution as the reward)"
