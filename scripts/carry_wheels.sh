#!/usr/bin/env bash
# Collect into FOLDER the wheels that `codezero bench card` needs on a machine that has CUDA, Python 3.12 and a torch of
# its own, and no network. Versions are those of uv.lock; torch and what only torch needs stay behind.
# Usage: scripts/carry_wheels.sh FOLDER [HAVE]    scripts/carry_wheels.sh --list [HAVE]    (names and versions alone)
# HAVE: what `python3 -m pip list --format=freeze` prints there. What it has within the bounds of pyproject.toml is not
# carried. Without HAVE the packages of ASSUMED are taken to be there.
# There: python3 -m pip install --no-index --no-deps --target there/site-packages FOLDER/*.whl, and that folder and the
# checkout in PYTHONPATH. The last part of its name matters: `dill`, which `datasets` uses, looks for it.
set -euo pipefail
export PYTHONSAFEPATH=1  # a file in this folder is no module of Python's
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-.venv/bin/python}
most_mib=64
[[ $# -ge 1 ]] || { sed -n '2,9s/^# //p' "$0" >&2; exit 2; }

wanted=$("$python" - "${2:-}" <<'PYTHON'
import re
import sys
import tomllib
from pathlib import Path

from packaging.markers import Marker
from packaging.requirements import Requirement

ROOTS = ("accelerate", "datasets", "hydra-core", "msgspec", "peft", "psutil", "pydantic", "pyflakes",
         "pyyaml", "safetensors", "scipy", "tokenizers", "transformers", "trl")
"""What the benchmark imports itself, with codezero's parts that it uses."""
ASSUMED = ("accelerate", "numpy", "pandas", "peft", "psutil", "pyarrow", "pyyaml", "safetensors", "tokenizers")
"""Of any version: large ones that images with torch have, and small ones whose version matters little."""
THERE = {"python_version": "3.12", "python_full_version": "3.12.0", "sys_platform": "linux", "extra": "",
         "platform_machine": "x86_64", "platform_system": "Linux", "implementation_name": "cpython"}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


locked = {}
for package in tomllib.loads(Path("uv.lock").read_text())["package"]:
    markers = package.get("resolution-markers")
    if not markers or any(Marker(text).evaluate(THERE) for text in markers):
        locked[package["name"]] = package
declared = [Requirement(text) for text in tomllib.loads(Path("pyproject.toml").read_text())["project"]["dependencies"]]
bounds = {normal(each.name): each.specifier for each in declared}
if sys.argv[1]:
    pairs = (line.strip().partition("==") for line in Path(sys.argv[1]).read_text().splitlines())
    have = {normal(name): version for name, _, version in pairs if version}
else:
    have = dict.fromkeys(ASSUMED, "")

needed, waiting = {}, list(ROOTS)
while waiting:
    package = locked[waiting.pop()]
    if package["name"] in needed or package["name"] == "torch":
        continue
    needed[package["name"]] = package["version"]
    for each in package.get("dependencies", ()):
        if "marker" not in each or Marker(each["marker"]).evaluate(THERE):
            waiting.append(each["name"])
for name, version in sorted(needed.items()):
    there = have.get(name)
    fits = there == "" or (there and (name not in bounds or bounds[name].contains(there)))
    if not fits:
        print(f"{name}=={version}")
PYTHON
)
if [[ $1 == --list ]]; then
  echo "$wanted"
  exit
fi

mkdir -p "$1"
platforms=()
for age in manylinux_2_{34,31,28,27,24,17,12,5}_x86_64 manylinux2014_x86_64 manylinux2010_x86_64 manylinux1_x86_64; do
  platforms+=(--platform "$age")
done
pip=("$python" -m pip --quiet --disable-pip-version-check)
for package in $wanted; do
  "${pip[@]}" download --no-deps --only-binary=:all: --python-version 3.12 --implementation cp "${platforms[@]}" \
    --dest "$1" "$package" 2>/dev/null ||
    "${pip[@]}" wheel --no-deps --wheel-dir "$1" "$package"  # no wheel is published: made here, for any machine
done
bytes=$(cat "$1"/*.whl | wc -c)
echo "carry_wheels: $(find "$1" -name '*.whl' | wc -l) wheels, $((bytes / 1048576)) MiB in $1"
if ((bytes > most_mib * 1048576)); then
  echo "carry_wheels: more than $most_mib MiB; give a HAVE that says what the machine has" >&2
  exit 1
fi
