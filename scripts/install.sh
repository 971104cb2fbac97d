#!/usr/bin/env bash
# Make .venv/ hold what uv.lock names. Arguments: "dev" for the test tools, and extras of pyproject.toml, such as "wandb".
# Safe to repeat; does nothing when nothing changed. Where the system has no Python that fits, uv brings one.
# torch is installed apart from the rest, so that a machine without a GPU gets the small CPU build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONSAFEPATH=1  # a file in this folder is no module of Python's

groups=(--no-dev)
for word in "$@"; do
  if [[ $word == dev ]]; then groups[0]=--group=dev; else groups+=("--extra=$word"); fi
done

# The stamp says which lock and project file the environment was made from, then what was asked for. More than is wanted
# now is enough, so that a plain start after a start with extras needs no network.
stamp=.venv/codezero-installed
enough() {
  local had word
  [[ -f $stamp ]] || return 1
  read -r had <"$stamp"
  for word in "$made_from" "${groups[@]}"; do
    [[ $word == --no-dev || " $had " == *" $word "* ]] || return 1
  done
}

# Of this machine; else 3.12 of python-build-standalone, which uv fetches: some 30 MB.
find_python() {
  local candidate uv
  for candidate in python3.12 python3.11 python3.13 python3; do
    if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys; raise SystemExit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then
      python=$candidate
      return
    fi
  done
  if uv=$(command -v uv); then
    echo "codezero: no Python 3.11 to 3.13 here; uv fetches 3.12, some 30 MB" >&2
    if "$uv" python install --quiet 3.12 && python=$("$uv" python find 3.12); then return; fi
    echo "codezero: uv could not fetch it" >&2
  fi
  echo "codezero: needs Python 3.11 to 3.13; install one, or uv (https://docs.astral.sh/uv), which brings one, or name it: PYTHON=/path/to/python3.12 $0" >&2
  exit 2
}

ticker=
stop_ticker() { if [[ -n $ticker ]]; then kill "$ticker" 2>/dev/null || true; wait "$ticker" 2>/dev/null || true; ticker=; printf '\r\e[2K'; fi; }

# NAME, then a command. On a terminal a line that moves says how long it takes and how large .venv/ has become.
step() {
  local name=$1 began=$SECONDS
  shift
  echo "codezero: $name"
  if [[ -t 1 ]]; then
    while sleep 1; do printf '\r\e[2K  %d s, %s MB in .venv/' $((SECONDS - began)) "$(du -sm .venv 2>/dev/null | cut -f1)"; done &
    ticker=$!
  fi
  "$@"
  stop_ticker
}

install_torch() {
  # "auto" takes the CUDA build where a driver is found and the CPU build elsewhere; where only the ordinary package
  # index can be reached, pip takes what that has.
  "$uv" pip install --quiet --python .venv/bin/python --torch-backend "${TORCH_BACKEND:-auto}" "$torch" 2>/dev/null ||
    .venv/bin/python -m pip install --quiet --disable-pip-version-check "$torch"
}

python=${PYTHON:-}
if [[ -z $python ]]; then find_python; fi
made_from=$(cat uv.lock pyproject.toml scripts/install.sh | sha256sum | cut -d' ' -f1)
if enough; then exit 0; fi

echo "codezero: installing into .venv/, in 4 steps; the first time takes some minutes and 2 GB of disk, several more with CUDA"
# Installed from a folder of its own: beside pyproject.toml, uv would let the overrides there undo what the lock names.
folder=$(mktemp -d)
trap 'stop_ticker; rm -rf "$folder"' EXIT
if [[ ! -x .venv/bin/python ]]; then "$python" -m venv .venv; fi
rm -f "$stamp"
step "1 of 4: uv, which installs the rest, 60 MB" .venv/bin/python -m pip install --quiet --disable-pip-version-check "uv>=0.13,<0.14"
uv=.venv/bin/uv
"$uv" export --quiet --frozen --no-emit-project --prune torch "${groups[@]}" --output-file "$folder/requirements.txt"
packages=$(grep -c '^[A-Za-z0-9]' "$folder/requirements.txt" 2>/dev/null || true)
step "2 of 4: ${packages:-the} packages of uv.lock, some 1 GB" \
  "$uv" pip install --quiet --directory "$folder" --python "$PWD/.venv/bin/python" --no-deps --require-hashes --requirements requirements.txt

torch=torch==$(sed -n '/^name = "torch"$/{n;s/version = "\(.*\)"/\1/p;q}' uv.lock)
if ! .venv/bin/python -m pip show --quiet "${torch%%==*}" 2>/dev/null; then
  step "3 of 4: $torch, 0.8 GB for the CPU, several with CUDA" install_torch
fi
step "4 of 4: codezero itself" "$uv" pip install --quiet --python .venv/bin/python --no-deps --editable .
echo "$made_from ${groups[*]}" >"$stamp"
