"""Pushes the policy to the Hugging Face Hub, beside the training and never in its way.

A checkpoint's policy is linked into a folder of its own, which costs no time and no space, and uploaded by a process:
huggingface_hub's threads have no deadline and would hold up the end of the node. What goes wrong is logged when it
changes, shown by `codezero status`, and tried again with the newest checkpoint after a pause that doubles from half a
minute to an hour.

As a program: push one folder, with the arguments of `push` as JSON on stdin. It prints the address of the commit.
"""

import contextlib
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from codezero.config import HubConfig
from codezero.protocols import Checkpoints
from codezero.system.child import Child
from codezero.system.files import write_atomic
from codezero.system.signals import backoff, end_with_parent
from codezero.system.state import KnownRound, Persistent

logger = logging.getLogger(__name__)

STATE, STAGING = "hub.json", ".hub"
"""In the run's folder: how pushing goes, and what is being pushed."""
KEPT_BACK = frozenset({"base.json"})
"""Files beside an adapter that name a folder of this machine."""
FIRST_PAUSE, LONGEST_PAUSE = 30.0, 3600.0
LEAVE_SECONDS, KILLED_SECONDS = 15.0, 5.0
"""For a push under way when the run ends, of the 30 in which a node has to leave; and for its end then."""
MAX_STATE_BYTES = 1 << 16
_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_QUIET = {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


class HubState(msgspec.Struct, frozen=True):
    """How pushing goes."""

    repository: str
    round: int | None = None
    """Of the newest policy that is there."""
    iteration: int | None = None
    at: float | None = None
    """When it was pushed, in seconds since 1970."""
    commit: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    """Its address."""
    problem: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    """Why the last try failed; empty: it did not."""
    failures: int = 0
    """In a row."""


def read_state(run: Path) -> HubState | None:
    """None where nothing is pushed, or where it cannot be read."""
    try:
        with (run / STATE).open("rb") as file:
            return msgspec.json.decode(file.read(MAX_STATE_BYTES), type=HubState)
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


class HubPusher:
    """At most one push at a time. `saved` and `close` are for one thread.

    card: the model card of an iteration; called in the pushing thread.
    """

    def __init__(
        self,
        settings: HubConfig,
        token: str,
        run: Path,
        card: Callable[[int], str],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._token, self._run, self._card, self._clock = settings, token, run, card, clock
        state = read_state(run)
        repository = settings.repository
        self.state = state if state and state.repository == repository else HubState(repository)
        self._not_before = clock()
        self._thread: threading.Thread | None = None
        self._child: Child | None = None
        self._closing = False

    def saved(self, policy: Path, iteration: int, round_number: int) -> None:
        """A checkpoint was written, with its policy in this folder. Returns at once."""
        busy = self._thread is not None and self._thread.is_alive()
        last = self.state.round
        # A run that was taken back to an earlier round pushes again.
        early = last is not None and last <= round_number < last + self._settings.every
        if busy or early or self._clock() < self._not_before:
            return
        try:
            stage(policy, self._run / STAGING)
        except (OSError, ValueError) as error:
            self._failed(f"{policy} cannot be made ready: {error}")
            return
        self._thread = threading.Thread(target=self._push, args=(iteration, round_number), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """A push under way gets LEAVE_SECONDS and is cut off."""
        if self._thread is not None:
            self._thread.join(LEAVE_SECONDS)
            self._closing = True
            if (child := self._child) is not None:
                child.kill()
            self._thread.join(KILLED_SECONDS)
        shutil.rmtree(self._run / STAGING, ignore_errors=True)

    def _push(self, iteration: int, round_number: int) -> None:
        try:
            card = self._run / STAGING / "README.md"
            card.unlink(missing_ok=True)
            card.write_text(self._card(iteration))
            commit, problem = self._run_child(f"round {round_number}, iteration {iteration}")
        except OSError as error:
            commit, problem = "", f"cannot push: {error}"
        if problem:
            self._failed(problem)
        else:
            self._become(HubState(self._settings.repository, round_number, iteration, time.time(), commit[:1000]))

    def _run_child(self, message: str) -> tuple[str, str]:
        """(address of the commit, what went wrong)."""
        settings = self._settings
        order = {"repository": settings.repository, "private": settings.private, "message": message}
        order |= {"folder": str(self._run / STAGING), "token": self._token}  # on stdin: nobody else can see it there
        variables = {name: value for name, value in os.environ.items() if name not in _TOKENS} | _QUIET
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", __name__]
        with Child(command, env=variables, stdin=pipe, stdout=pipe, stderr=pipe) as child:
            self._child = child
            try:
                out, err = child.communicate(json.dumps(order).encode(), timeout=settings.seconds)
            except subprocess.TimeoutExpired:
                return "", f"not done after {settings.seconds:g} seconds"
            finally:
                self._child = None
        out, err = (text.decode("utf-8", "replace").strip().rpartition("\n")[2] for text in (out, err))
        if child.returncode:
            return "", err.replace(self._token, "***")[:500] or f"the pushing process ended with {child.returncode}"
        return out, ""

    def _failed(self, problem: str) -> None:
        if self._closing:
            return
        failures = self.state.failures + 1
        self._not_before = self._clock() + backoff(failures, FIRST_PAUSE, LONGEST_PAUSE)
        self._become(msgspec.structs.replace(self.state, problem=problem[:1000], failures=failures))

    def _become(self, state: HubState) -> None:
        """Logged once per change."""
        old, self.state = self.state, state
        if state.problem != old.problem and state.problem:
            logger.warning("%s: %s; trying again, training goes on", state.repository, state.problem)
        elif not state.problem:
            again = " again" if old.problem else ""
            logger.info("%s: pushed%s, round %s: %s", state.repository, again, state.round, state.commit)
        with contextlib.suppress(OSError):  # a full disk is in the log
            write_atomic(self._run / STATE, msgspec.json.encode(state))


class PushedCheckpoints:
    """Implements `protocols.Checkpoints`: what is saved is also pushed. `policy`: its folder in an iteration's."""

    def __init__(
        self, store: Checkpoints, pusher: HubPusher, policy: Callable[[int], Path], known_round: KnownRound
    ) -> None:
        self._store, self._pusher, self._policy, self._known_round = store, pusher, policy, known_round

    def save(self, iteration: int, parts: Mapping[str, Persistent]) -> None:
        self._store.save(iteration, parts)
        self._pusher.saved(self._policy(iteration), iteration, self._known_round.number)

    def restore(self, parts: Mapping[str, Persistent]) -> int:
        return self._store.restore(parts)


def stage(policy: Path, staging: Path) -> None:
    """Link a policy's files into `staging`, which stay when the checkpoint goes. Raises OSError and ValueError.

    An adapter's settings are written anew where they name a folder of this machine as its base.
    """
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    for path in sorted(policy.iterdir()):
        if path.name in KEPT_BACK or not path.is_file():
            continue
        if path.name == "adapter_config.json":
            settings = json.loads(path.read_bytes())
            base = settings.get("base_model_name_or_path")
            settings["base_model_name_or_path"] = Path(base).name if isinstance(base, str) and base[:1] == "/" else base
            (staging / path.name).write_text(json.dumps(settings, indent=2))
            continue
        try:
            os.link(path, staging / path.name)
        except OSError:
            shutil.copyfile(path, staging / path.name)  # a file system without hard links


def push(repository: str, private: bool, message: str, folder: str, token: str) -> str:
    """The commit's address. Raises what huggingface_hub raises, ValueError for a repository that is public.

    The token is the only one used: what the hub's own tools saved on this machine is neither read nor changed.
    """
    from huggingface_hub import HfApi

    api = HfApi(token=token)
    api.create_repo(repository, private=private, exist_ok=True)
    if private and not api.model_info(repository).private:
        raise ValueError(f"{repository} is public, and hub.private=true; set hub.private=false or choose another")
    return str(api.upload_folder(repo_id=repository, folder_path=folder, commit_message=message).commit_url)


def main() -> None:
    end_with_parent()
    order = json.load(sys.stdin)
    from huggingface_hub.errors import HfHubHTTPError

    try:
        print(push(**order))
    except (HfHubHTTPError, OSError, ValueError) as error:
        sys.exit(" ".join(str(error).split())[:400] or type(error).__name__)


if __name__ == "__main__":
    main()
