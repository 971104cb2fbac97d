"""Pushes the policy to the Hugging Face Hub, beside the training and never in its way.

A checkpoint's policy is linked into a folder of its own, which costs no time and no space; another process pushes it,
under a deadline, and ends with this one. What goes wrong is logged when it changes, shown by `codezero status`, and
tried again with the newest checkpoint after a pause that doubles from half a minute to an hour.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from codezero.protocols import Checkpoints, KnownRound, Persistent
from codezero.system.files import write_atomic
from codezero.system.signals import LEASH

logger = logging.getLogger(__name__)

STATE, STAGING = "hub.json", ".hub"
"""In the run's folder: how pushing goes, and what is being pushed."""
CARD = "README.md"
KEPT_BACK = frozenset({"base.json"})
"""Files beside an adapter that name a folder of this machine."""
FIRST_PAUSE, LONGEST_PAUSE = 30.0, 3600.0
LEAVE_SECONDS = 15.0
"""That a push which is under way gets when the run ends, of the 30 in which a node has to leave."""
KILLED_SECONDS = 5.0
"""That its end is waited for then."""
MOST_STATE_BYTES = 1 << 16
_PRIVATE_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
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
            return msgspec.json.decode(file.read(MOST_STATE_BYTES), type=HubState)
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where to."""

    repository: str
    private: bool
    token: str
    every: int
    """Rounds."""
    seconds: float
    """Deadline of one push."""

    def __repr__(self) -> str:
        return f"Target({self.repository})"  # the token belongs in no log


class HubPusher:
    """At most one push at a time. `saved` and `close` are for one thread.

    card: the model card of an iteration; asked for in the pushing thread.
    """

    def __init__(
        self,
        target: Target,
        run: Path,
        card: Callable[[int], str],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target, self._run, self._card, self._clock = target, run, card, clock
        told = read_state(run)
        self.state = told if told and told.repository == target.repository else HubState(target.repository)
        self._not_before = clock()
        self._thread: threading.Thread | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._closing = False

    def saved(self, policy: Path, iteration: int, round_number: int) -> None:
        """A checkpoint was written, with its policy in this folder. Returns at once."""
        busy = self._thread is not None and self._thread.is_alive()
        last = self.state.round
        # A run that was taken back to an earlier round pushes again.
        early = last is not None and last <= round_number < last + self._target.every
        if busy or early or self._clock() < self._not_before:
            return
        staging = self._run / STAGING
        try:
            stage(policy, staging)
        except (OSError, ValueError) as error:
            self._failed(f"{policy} cannot be made ready: {error}")
            return
        self._thread = threading.Thread(target=self._push, args=(staging, iteration, round_number), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """A push under way gets LEAVE_SECONDS and is cut off."""
        thread, child = self._thread, self._child
        if thread is not None:
            thread.join(LEAVE_SECONDS)
            self._closing = True
            if thread.is_alive() and (child := self._child) is not None:
                child.kill()
            thread.join(KILLED_SECONDS)
        shutil.rmtree(self._run / STAGING, ignore_errors=True)

    def _push(self, staging: Path, iteration: int, round_number: int) -> None:
        try:
            (staging / CARD).unlink(missing_ok=True)
            (staging / CARD).write_text(self._card(iteration))
            commit, problem = self._run_child(staging, iteration, round_number)
        except OSError as error:
            commit, problem = "", f"cannot push: {error}"
        if problem:
            self._failed(problem)
            return
        self._become(HubState(self._target.repository, round_number, iteration, time.time(), commit))

    def _run_child(self, staging: Path, iteration: int, round_number: int) -> tuple[str, str]:
        """(address of the commit, what went wrong)."""
        target = self._target
        order = {
            "repository": target.repository,
            "private": target.private,
            "token": target.token,  # on stdin: arguments and variables can be seen by others
            "folder": str(staging),
            "message": f"round {round_number}, iteration {iteration}",
        }
        surroundings = {name: value for name, value in os.environ.items() if name not in _PRIVATE_VARIABLES} | _QUIET
        leash, ours = os.pipe()
        child = subprocess.Popen(
            [sys.executable, "-m", "codezero.solver.hub_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=surroundings | {LEASH: str(leash)},
            pass_fds=(leash,),
            start_new_session=True,  # Ctrl-C is for this process; the child is ended by `close`
        )
        os.close(leash)
        self._child = child
        try:
            out, err = child.communicate(json.dumps(order).encode(), timeout=target.seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            return "", f"not done after {target.seconds:g} seconds"
        finally:
            self._child = None
            os.close(ours)
        return _answer(out, err, child.returncode, target.token)

    def _failed(self, problem: str) -> None:
        if self._closing:
            return
        failures = self.state.failures + 1
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures - 1, 16))
        self._not_before = self._clock() + pause
        self._become(msgspec.structs.replace(self.state, problem=problem[:1000], failures=failures))

    def _become(self, state: HubState) -> None:
        """Logged once per change."""
        was, self.state = self.state, state
        if state.problem != was.problem and state.problem:
            logger.warning("%s: %s; trying again, training goes on", state.repository, state.problem)
        elif not state.problem:
            again = " again" if was.problem else ""
            logger.info("%s: pushed%s, round %s: %s", state.repository, again, state.round, state.commit)
        with contextlib.suppress(OSError):  # a full disk: the log has said it
            write_atomic(self._run / STATE, msgspec.json.encode(state))


class PushedCheckpoints:
    """Implements `protocols.Checkpoints`: what is saved is also pushed."""

    def __init__(
        self,
        store: Checkpoints,
        pusher: HubPusher,
        policy: Callable[[int], Path],
        known_round: KnownRound,
    ) -> None:
        """`policy`: the folder of the policy in the checkpoint of an iteration."""
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
            told = json.loads(path.read_bytes())
            base = told.get("base_model_name_or_path")
            told["base_model_name_or_path"] = Path(base).name if isinstance(base, str) and "/" in base[:1] else base
            (staging / path.name).write_text(json.dumps(told, indent=2))
            continue
        try:
            os.link(path, staging / path.name)
        except OSError:
            shutil.copyfile(path, staging / path.name)  # a file system without hard links


def _answer(out: bytes, err: bytes, code: int, token: str) -> tuple[str, str]:
    """What the child said on its last line; the token is in none of it."""
    lines = err.decode("utf-8", "replace").replace(token, "***").strip().splitlines()
    try:
        told = msgspec.json.decode(out, type=dict[str, str])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        told = {}
    if code == 0 and "commit" in told:
        return told["commit"][:1000], ""
    why = told.get("problem", "").replace(token, "***") or (lines[-1] if lines else "")
    return "", (why or f"the pushing process ended with {code}")[:500]
