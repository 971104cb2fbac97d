#!/usr/bin/env bash
# Set up everything, then run a node. Arguments go to codezero:
#   ./run_swarm.sh                        a swarm of one
#   ./run_swarm.sh run run.max_minutes=3  stop after three minutes
#   ./run_swarm.sh swarm up --nodes 3     three nodes that learn from each other
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
extras=()
if [[ " $* " == *" environment=gym "* || $* == *environments.reasoning_gym* ]]; then extras+=(gym); fi
if [[ $* == *environments.verifiers* ]]; then extras+=(verifiers); fi
scripts/install.sh "${extras[@]}"
scripts/build_page.sh || true  # it has said why; a node without a page trains as well
if [[ $# -eq 0 || $1 == *=* ]]; then set -- run "$@"; fi
exec .venv/bin/codezero "$@"
