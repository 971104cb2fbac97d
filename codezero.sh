#!/usr/bin/env bash
# The command `codezero` of this checkout, installed first: ./codezero.sh runs. It works in the folder that it is called in.
# (`./codezero` is the package's folder.) ./run_swarm.sh is the same in this folder, and without a command it runs a node.
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
extras=()
if [[ " $* " == *" environment=gym "* || $* == *environments.reasoning_gym* ]]; then extras+=(gym); fi
if [[ $* == *environments.verifiers* ]]; then extras+=(verifiers); fi
"$root/scripts/install.sh" "${extras[@]}"
case ${1:-} in
  run | propose | swarm | dashboard | login) "$root/scripts/build_page.sh" || true ;;  # it has said why; a node without a page trains as well
esac
exec "$root/.venv/bin/codezero" "$@"
