#!/usr/bin/env bash
# Make .venv/ hold what uv.lock names. Arguments: "dev" for the test tools, and extras of pyproject.toml, such as "wandb".
# Safe to repeat; does nothing when nothing changed.
# torch is installed apart from the rest, so that a machine without a GPU gets the small CPU build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

groups=(--no-dev)
for word in "$@"; do
  if [[ $word == dev ]]; then groups[0]=--group=dev; else groups+=("--extra=$word"); fi
done

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

# The stamp says which lock and project file the environment was made from, then what was asked for. More than is wanted
# now is enough, so that a plain start after a start with extras needs no network.
stamp=.venv/codezero-installed
made_from=$(cat uv.lock pyproject.toml scripts/install.sh | sha256sum | cut -d' ' -f1)
enough() {
  local had word
  [[ -f $stamp ]] || return 1
  read -r had <"$stamp"
  for word in "$made_from" "${groups[@]}"; do
    [[ $word == --no-dev || " $had " == *" $word "* ]] || return 1
  done
}
if enough; then exit 0; fi

echo "codezero: installing into .venv/ (the first time takes some minutes)"
[[ -x .venv/bin/python ]] || "$python" -m venv .venv
rm -f "$stamp"
.venv/bin/python -m pip install --quiet --disable-pip-version-check "uv>=0.13,<0.14"
uv=.venv/bin/uv
# Installed from a folder of its own: beside pyproject.toml, uv would let the overrides there undo what the lock names.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$uv" export --quiet --frozen --no-emit-project --prune torch "${groups[@]}" --output-file "$folder/requirements.txt"
"$uv" pip install --quiet --directory "$folder" --python "$PWD/.venv/bin/python" --no-deps --require-hashes --requirements requirements.txt

torch=torch==$(sed -n '/^name = "torch"$/{n;s/version = "\(.*\)"/\1/p;q}' uv.lock)
if ! .venv/bin/python -m pip show --quiet "${torch%%==*}" 2>/dev/null; then
  # "auto" takes the CUDA build where a driver is found and the CPU build elsewhere; where only the ordinary package
  # index can be reached, pip takes what that has.
  "$uv" pip install --quiet --python .venv/bin/python --torch-backend "${TORCH_BACKEND:-auto}" "$torch" 2>/dev/null ||
    .venv/bin/python -m pip install --quiet --disable-pip-version-check "$torch"
fi
"$uv" pip install --quiet --python .venv/bin/python --no-deps --editable .
echo "$made_from ${groups[*]}" >"$stamp"
