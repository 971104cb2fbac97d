"""HumanEval, MBPP and a tokenizer as their authors published them, where this machine has them; never committed."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def real_data(*names: str) -> Path:
    """The folder that CODEZERO_REAL_DATA names, else `shared/data` beside the repository; skips without these files."""
    folder = Path(os.environ.get("CODEZERO_REAL_DATA") or ROOT.parent / "shared" / "data")
    missing = [name for name in names if not (folder / name).exists()]
    if missing:
        pytest.skip(f"no {' and no '.join(missing)} in {folder}; CODEZERO_REAL_DATA names the folder")
    return folder
