"""One push of a policy to the Hugging Face Hub: its files, the program that uploads them, and how pushing goes.

A process of its own pushes: huggingface_hub joins its threads at exit, so a hub that hangs would hold up the node.
"""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import msgspec

from codezero.system.files import read_json, write_atomic
from codezero.system.signals import end_with_parent

STATE = "hub.json"
"""In the run's folder: how pushing goes."""


class HubState(msgspec.Struct, frozen=True):
    """How pushing goes. Round and iteration are of the newest policy that is there, `commit` is its address."""

    repository: str
    round: int | None = None
    iteration: int | None = None
    at: float | None = None
    """When it was pushed, in seconds since 1970."""
    commit: str = ""
    problem: str = ""
    """Why the last try failed; empty: it did not."""
    failures: int = 0
    """In a row."""


def read_state(run: Path) -> HubState | None:
    """None where nothing is pushed, or where it cannot be read."""
    try:
        return read_json(run / STATE, HubState, 1 << 16)
    except (OSError, ValueError):
        return None


def stage(policy: Path, staging: Path, card: str) -> None:
    """Link or copy a policy's files into `staging`, which stay when the checkpoint goes. Raises OSError and ValueError.

    What names a folder of this machine as an adapter's base is left out.
    """
    shutil.rmtree(staging, ignore_errors=True)
    without_base = shutil.ignore_patterns("base.json")
    try:
        shutil.copytree(policy, staging, copy_function=os.link, ignore=without_base)
    except OSError:  # a file system without hard links
        shutil.copytree(policy, staging, ignore=without_base, dirs_exist_ok=True)
    write_atomic(staging / "README.md", card)
    adapter = staging / "adapter_config.json"
    if adapter.exists():
        settings = json.loads(adapter.read_bytes())
        base = str(settings.get("base_model_name_or_path") or "")
        settings["base_model_name_or_path"] = Path(base).name if base.startswith("/") else base
        write_atomic(adapter, json.dumps(settings, indent=2))


def main(repository: str, folder: str, message: str, seconds: str, private: str = "") -> None:
    """Push with the token on standard input, and print the address of the commit; SIGALRM ends a long push.

    What the hub's own tools saved on this machine is neither read nor changed.
    """
    end_with_parent()
    signal.setitimer(signal.ITIMER_REAL, float(seconds))
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    api = HfApi(token=sys.stdin.read())
    try:
        api.create_repo(repository, private=bool(private), exist_ok=True)
        if private and not api.model_info(repository).private:
            sys.exit(f"{repository} is public, and hub.private=true; set hub.private=false or choose another")
        print(api.upload_folder(repo_id=repository, folder_path=folder, commit_message=message).commit_url)
    except (HfHubHTTPError, OSError, ValueError) as error:
        sys.exit(" ".join(str(error).split())[:400] or type(error).__name__)


if __name__ == "__main__":
    main(*sys.argv[1:])
