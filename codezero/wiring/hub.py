"""Config -> checkpoints that are also pushed to the hub, beside the training and never in its way."""

# pyright: reportUnknownMemberType=false

import contextlib
import io
import logging
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from codezero.config import HubConfig, NodeConfig
from codezero.config.learning import named
from codezero.config.training import REPOSITORY
from codezero.errors import ConfigError
from codezero.monitor.report import start_and_end
from codezero.monitor.run_state import Fold, History
from codezero.protocols import Checkpoints
from codezero.runs import CHECKPOINTS
from codezero.solver import hub_push
from codezero.solver.hub_push import STATE, HubState, read_state, stage
from codezero.system.child import Child, how_it_ended, python
from codezero.system.files import read_private, write_atomic
from codezero.system.signals import Backoff
from codezero.system.state import KnownRound, Persistent

logger = logging.getLogger(__name__)

STAGING = ".hub"
"""In the run's folder: what is being pushed."""
PUSH_SECONDS, LEAVE_SECONDS = 600.0, 15.0
"""For a push, and for one under way when the run ends, of the 30 in which a node has to leave."""
MAX_TOKEN, MAX_METRICS = 1024, 1 << 20
"""Bytes; of the metrics, read for the first card."""


class PushedCheckpoints:
    """Implements `protocols.Checkpoints`: every so many rounds what is saved is also pushed, one push at a time.

    A push that fails is tried again with a later checkpoint, after half a minute to an hour. Raises ConfigError.
    """

    def __init__(self, store: Checkpoints, config: NodeConfig, run: Path, known_round: KnownRound) -> None:
        self._store, self._config, self._run, self._known_round = store, config, run, known_round
        self._token, self._history = token_of(config.hub), History(run, budget=MAX_METRICS)
        state, repository = read_state(run), config.hub.repository
        self.state = state if state and state.repository == repository else HubState(repository)
        self.child: Child | None = None
        """The push under way; `_next` is the state when it has ended well."""
        self._next = self.state
        self.pause = Backoff(30.0, 3600.0)

    def restore(self, parts: Mapping[str, Persistent]) -> int:
        return self._store.restore(parts)

    def save(self, iteration: int, parts: Mapping[str, Persistent]) -> None:
        """Waits for no push, and raises only what the store raises."""
        self._store.save(iteration, parts)
        self.poll()
        hub, number, last = self._config.hub, self._known_round.number, self.state.round
        # a run that was taken back to an earlier round pushes again
        early = last is not None and last <= number < last + hub.every
        if self.child is not None or early or self.pause.left:
            return
        part = "adapter" if self._config.model.train == "lora" else "model"
        policy, staging = self._run / CHECKPOINTS / f"{iteration:08d}" / "solver" / part, self._run / STAGING
        message = f"round {number}, iteration {iteration}"
        order = [hub.repository, str(staging), message, str(PUSH_SECONDS), *["private"] * hub.private]
        quiet = {"HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        command, pipe = python("-m", hub_push.__name__, *order), subprocess.PIPE
        self._next = HubState(hub.repository, number, iteration)
        try:
            stage(policy, staging, model_card(self._config, self._history.read(), iteration))
            with tempfile.TemporaryFile() as token:  # has no name and ends with its readers
                token.write(self._token.encode())
                token.seek(0)
                self.child = Child(command, env=os.environ | quiet, stdin=token, stdout=pipe, stderr=pipe)
        except (OSError, ValueError) as error:
            self._record(f"{message} cannot be made ready: {error}")

    def poll(self, seconds: float = 0.0) -> None:
        """Record how the push under way ended, if it does so within `seconds`."""
        if self.child is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self.child.wait(seconds)
            with self.child as child:
                address, errors = child.communicate()
            self.child = None
            problem = how_it_ended(code, io.BytesIO(errors)).replace(self._token, "***") if code else ""
            if code == -signal.SIGALRM:
                problem = f"not done after {PUSH_SECONDS:g} seconds"
            self._record(problem, address.decode(errors="replace").strip())

    def close(self) -> None:
        """A push under way gets LEAVE_SECONDS and is cut off."""
        self.poll(LEAVE_SECONDS)
        if self.child is not None:
            with self.child as child:
                child.kill()
        shutil.rmtree(self._run / STAGING, ignore_errors=True)

    def _record(self, problem: str, commit: str = "") -> None:
        """Log what has changed, and write the state."""
        old, name = self.state.problem, self.state.repository
        if problem:
            self.pause.failed()
            self.state = replace(self.state, problem=problem[:1000], failures=self.pause.failures)
            if self.state.problem != old:
                logger.warning("%s: %s; trying again, training goes on", name, problem)
        else:
            self.pause.succeeded()
            self.state = replace(self._next, at=time.time(), commit=commit[:1000])
            logger.info("%s: pushed%s, round %s: %s", name, " again" if old else "", self.state.round, commit)
        with contextlib.suppress(OSError):  # a full disk is in the log
            write_atomic(self._run / STATE, msgspec.json.encode(self.state))


def token_of(settings: HubConfig) -> str:
    """From the file or the variable that the config names. Raises ConfigError."""
    if file := settings.token_file:
        where = f"hub.token_file={file}"
        token = read_private(Path(file), MAX_TOKEN, ConfigError).decode(errors="replace").strip()
    else:
        where, token = f"the variable {settings.token_variable}", os.environ.get(settings.token_variable, "").strip()
    if not re.fullmatch("[!-~]+", token):
        raise ConfigError(f"hub.repository={settings.repository} needs a token that may write, and {where} has none")
    return token


def model_card(config: NodeConfig, fold: Fold, iteration: int) -> str:
    """Markdown with the hub's front matter: the run's own figures, each with how it was measured, and nothing else."""
    from huggingface_hub import ModelCardData

    adapter, base = config.model.train == "lora", config.model.solver
    data = ModelCardData(
        base_model=base if REPOSITORY.fullmatch(base) else None,
        library_name="peft" if adapter else "transformers",
        pipeline_tag="text-generation",
        tags=["codezero", "grpo"],
    )
    exams, reward = "\n".join(start_and_end(fold.exams)), fold.newest("reward/mean")
    rewards = f"judged by the frozen `{_model_name(config.evaluator.model)}`"
    sources = {"rlvr": "executed", "hybrid": f"executed where a sandbox decides, else {rewards}"}
    rewards = sources.get(config.reward.mode, rewards)
    if function := config.reward.function:
        rewards = f"made by `{_model_name(named(function))}`, this node's own code, of what is {rewards}"
    learned = "A LoRA adapter for" if adapter else "All weights, learned from"
    return f"""---
{data.to_yaml()}
---

# {config.hub.repository.rpartition("/")[2]}

{learned} `{_model_name(base)}`, after {iteration} iterations of GRPO in a codezero swarm.
Rewards are {rewards}{"" if reward is None else f"; the mean of the newest iteration is {reward:.3f}"}.
{exams}

*executed*: attempts were run against their tests in a sandbox. *judged*: what a model believes of them.
"""


def _model_name(name: str) -> str:
    """A folder of this machine is named by its last part alone."""
    return (name if REPOSITORY.fullmatch(name) else Path(name).name).replace("`", "'")
