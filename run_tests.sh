#!/usr/bin/env bash
# Set up everything, then lint, check types and test. `./run_tests.sh slow` runs whole nodes and rare paths, seconds to a
# minute each; `./run_tests.sh long` what takes many minutes; `./run_tests.sh docker` what needs a container engine;
# `./run_tests.sh network` what needs root and network namespaces. Anything else goes to pytest, slow or not.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export PYTHONSAFEPATH=1  # a file in this folder is no module of Python's
# Of the extras below a package is compiled; without a compiler their tests are skipped.
scripts/install.sh dev gym verifiers || scripts/install.sh dev
scripts/install_test_tools.sh
export HF_HUB_OFFLINE=1
unset PYTHONDONTWRITEBYTECODE  # else each of hundreds of processes compiles the libraries anew
# One thread for each process: several run at once, and threads that wait for each other would take their cores.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
here="not long and not docker and not network"
# Several files at once, one more than there are cores, as tests of networks mostly wait; and no more than four, as
# those that run whole nodes are several processes already.
workers=$(($(env -u OMP_NUM_THREADS nproc) + 1))  # nproc would say what that variable does
several=(-n $((workers < 4 ? workers : 4)) --dist loadfile --no-loadscope-reorder --durations=40)
case ${1:-} in
  long | docker | network) exec .venv/bin/python -m pytest -m "$1" "${@:2}" ;;
  slow) exec .venv/bin/python -m pytest -m "slow and $here" "${several[@]}" "${@:2}" ;;
esac
.venv/bin/ruff check .
.venv/bin/ruff format --check .
# Beside pyright the tests are collected once, which compiles them and their libraries; else each worker would.
.venv/bin/python -m pytest --collect-only --quiet >/dev/null &
.venv/bin/pyright
wait
if (($#)); then exec .venv/bin/python -m pytest -m "$here" "$@"; fi
exec .venv/bin/python -m pytest -m "not slow and $here" "${several[@]}"
