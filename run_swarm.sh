#!/usr/bin/env bash
# Set up everything, then run a node. Arguments go to codezero:
#   ./run_swarm.sh                        a swarm of one
#   ./run_swarm.sh run run.max_minutes=3  stop after three minutes
#   ./run_swarm.sh swarm up --nodes 3     three nodes that learn from each other
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
if [[ $# -eq 0 || $1 == *=* ]]; then set -- run "$@"; fi
exec ./codezero.sh "$@"
