#!/usr/bin/env bash
# Set up everything, then lint, check types and test. `./run_tests.sh slow` runs the proofs that take minutes;
# any other arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
scripts/install.sh dev
scripts/install_test_tools.sh
export HF_HUB_OFFLINE=1
if [[ ${1:-} == slow ]]; then
  shift
  exec .venv/bin/python -m pytest -m slow "$@"
fi
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/pyright
if (($#)); then exec .venv/bin/python -m pytest -m "not slow" "$@"; fi
# Several files at once, one more than there are cores, as tests of networks mostly wait; and no more than four, as
# those that run whole nodes are several processes already.
workers=$(($(nproc) + 1))
exec .venv/bin/python -m pytest -m "not slow" -n $((workers < 4 ? workers : 4)) --dist loadfile --no-loadscope-reorder
