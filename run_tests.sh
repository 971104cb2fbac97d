#!/usr/bin/env bash
# Set up everything, then lint, check types and test. `./run_tests.sh slow` runs the proofs that take minutes;
# any other arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
scripts/install.sh dev
export HF_HUB_OFFLINE=1
if [[ ${1:-} == slow ]]; then
  shift
  exec .venv/bin/python -m pytest -m slow "$@"
fi
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/pyright
if (($#)); then exec .venv/bin/python -m pytest -m "not slow" "$@"; fi

# Two halves side by side: the tests of the swarm mostly wait for a network.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
.venv/bin/python -m pytest -m "not slow" tests/swarm >"$log" 2>&1 &
swarm=$!
code=0
.venv/bin/python -m pytest -m "not slow" --ignore=tests/swarm || code=$?
wait "$swarm" || code=$?
cat "$log"
exit "$code"
