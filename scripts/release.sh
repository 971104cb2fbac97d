#!/usr/bin/env bash
# Build what a release consists of: the page, the wheel in dist/, and the image where there is a container engine. It
# publishes nothing. Arguments: "wheel" leaves the image out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/install.sh dev
version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
if [[ -n $(git status --porcelain 2>/dev/null) ]]; then echo "codezero: the checkout has changes that no commit holds" >&2; fi
scripts/build_page.sh  # without a page there is no release
rm -f dist/codezero-*.whl
.venv/bin/uv build --quiet --wheel --out-dir dist
wheel=dist/codezero-$version-py3-none-any.whl
echo "codezero: $wheel, $(du -k "$wheel" | cut -f1) KiB; try it in an empty folder: uvx --from $PWD/$wheel codezero run run.max_minutes=1"
engine=$(command -v docker || command -v podman || true)
if [[ ${1:-} == wheel ]]; then
  exit 0
elif [[ -z $engine ]]; then
  echo "codezero: no image: there is neither docker nor podman here"
else
  "$engine" build --tag "codezero:$version" .
  echo "codezero: image codezero:$version; nothing was published"
fi
