#!/usr/bin/env bash
# Make .venv/ hold exactly what uv.lock names (argument "dev": test tools too). Safe to repeat; does nothing when nothing changed.
# torch is installed apart from the rest, so that a machine without a GPU gets the small CPU build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

groups=(--no-dev)
if [[ "${1:-}" == dev ]]; then groups=(--group dev); fi

python=${PYTHON:-}
if [[ -z $python ]]; then
  for candidate in python3.12 python3.11 python3; do
    if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys; raise SystemExit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null; then
      python=$candidate
      break
    fi
  done
fi
if [[ -z $python ]]; then
  echo "codezero: needs Python 3.11 or 3.12; install one, or name it: PYTHON=/path/to/python3.12 $0" >&2
  exit 2
fi

# The stamp says which lock, project file and tool set the environment was made from.
stamp=.venv/codezero-installed
wanted="${groups[*]} $(cat uv.lock pyproject.toml scripts/install.sh | sha256sum | cut -d' ' -f1)"
if [[ -f $stamp && $(<"$stamp") == "$wanted" ]]; then exit 0; fi
if [[ -f $stamp && "${1:-}" != dev && $(<"$stamp") == "--group dev ${wanted#--no-dev }" ]]; then exit 0; fi

echo "codezero: installing into .venv/ (the first time takes some minutes)"
[[ -x .venv/bin/python ]] || "$python" -m venv .venv
rm -f "$stamp"
.venv/bin/python -m pip install --quiet --disable-pip-version-check "uv>=0.13,<0.14"
uv=.venv/bin/uv
requirements=$(mktemp)
trap 'rm -f "$requirements"' EXIT
"$uv" export --quiet --frozen --no-emit-project --prune torch "${groups[@]}" --output-file "$requirements"
"$uv" pip install --quiet --python .venv/bin/python --no-deps --require-hashes --requirements "$requirements"

torch=torch==$(sed -n '/^name = "torch"$/{n;s/version = "\(.*\)"/\1/p;q}' uv.lock)
if ! .venv/bin/python -m pip show --quiet "${torch%%==*}" 2>/dev/null; then
  # "auto" takes the CUDA build where a driver is found and the CPU build elsewhere; where only the ordinary package
  # index can be reached, pip takes what that has.
  "$uv" pip install --quiet --python .venv/bin/python --torch-backend "${TORCH_BACKEND:-auto}" "$torch" 2>/dev/null ||
    .venv/bin/python -m pip install --quiet --disable-pip-version-check "$torch"
fi
"$uv" pip install --quiet --python .venv/bin/python --no-deps --editable .
echo "$wanted" >"$stamp"
