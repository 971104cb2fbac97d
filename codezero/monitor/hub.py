"""Checkpoints pushed to the Hugging Face Hub, beside the training and never in its way.

A process of its own pushes: huggingface_hub joins its threads at exit, so a hub that hangs would hold up the node."""

# pyright: reportUnknownMemberType=false

import contextlib
import io
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from msgspec.structs import replace

from codezero.config import HUB_TOKEN, REPOSITORY, HubConfig, NodeConfig
from codezero.config.learning import named
from codezero.errors import ConfigError
from codezero.monitor.report import start_and_end
from codezero.monitor.run_state import Fold, History
from codezero.system.child import Child, how_it_ended, python
from codezero.system.files import link_tree, read_known, read_private, write_atomic
from codezero.system.signals import Backoff, end_with_parent

logger = logging.getLogger(__name__)

STATE, STAGING = "hub.json", ".hub"  # in the run's folder: how pushing goes, and what is being pushed
# for a push, and for one under way when the run ends, of the 30 in which a node has to leave
PUSH_SECONDS, LEAVE_SECONDS = 600.0, 15.0


class HubState(msgspec.Struct, frozen=True):
    """State of pushing. Round and iteration are of the newest policy that is there, `commit` is its address."""

    repository: str
    round: int | None = None
    iteration: int | None = None
    at: float | None = None  # time of the push, in seconds since 1970
    commit: str = ""
    problem: str = ""  # reason that the last try failed; empty: it did not
    failures: int = 0  # in a row


def read_state(run: Path) -> HubState | None:
    """None where nothing is pushed, or where it cannot be read."""
    return read_known(run / STATE, HubState, 1 << 16)


def stage(policy: Path, staging: Path, card: str) -> None:
    """Put a policy's files into `staging`, where they stay when the checkpoint goes. Raises OSError and ValueError.
    What names a folder of this machine as an adapter's base is left out."""
    link_tree(policy, staging, "base.json")
    write_atomic(staging / "README.md", card)
    adapter = staging / "adapter_config.json"
    if adapter.exists():
        settings = json.loads(adapter.read_bytes())
        base = str(settings.get("base_model_name_or_path") or "")
        settings["base_model_name_or_path"] = Path(base).name if base.startswith("/") else base
        write_atomic(adapter, json.dumps(settings, indent=2))


class HubPushes:
    """Pushes what is saved, every so many rounds and one push at a time. A push that fails is tried again with a later
    checkpoint, after half a minute to an hour. Raises ConfigError."""

    def __init__(self, config: NodeConfig, run: Path) -> None:
        """run: its folder."""
        self._config, self._run = config, run
        self._token, self._history = token_of(config.hub), History(run, budget=1 << 20)
        state, repository = read_state(run), config.hub.repository
        self.state = state if state and state.repository == repository else HubState(repository)
        self.child: Child | None = None  # the push under way; `_next` is the state when it has ended well
        self._next = self.state
        self.pause = Backoff(30.0, 3600.0)

    def push(self, checkpoint: Path, round_number: int) -> None:
        """Begin to push this checkpoint, if it is not there, a push is due and none is under way. Waits for nothing."""
        self.poll()
        hub, number, last, iteration = self._config.hub, round_number, self.state.round, int(checkpoint.name)
        # a run that was taken back to an earlier round pushes again
        early = last is not None and last <= number < last + hub.every
        if self.child is not None or early or iteration == self.state.iteration or self.pause.left:
            return
        part = "adapter" if self._config.model.train == "lora" else "model"
        policy, staging = checkpoint / "solver" / part, self._run / STAGING
        message = f"round {number}, iteration {iteration}"
        order = [hub.repository, str(staging), message, str(PUSH_SECONDS), *["private"] * hub.private]
        quiet = {"HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        command, pipe = python("-m", "codezero.monitor.hub", *order), subprocess.PIPE
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
        token = read_private(Path(file), 1024, ConfigError).decode(errors="replace").strip()
    else:
        where, token = f"the variable {HUB_TOKEN}", os.environ.get(HUB_TOKEN, "").strip()
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
    rewards = f"judged by the frozen `{bare_name(config.evaluator.model)}`"
    sources = {"rlvr": "executed", "hybrid": f"executed where a sandbox decides, else {rewards}"}
    rewards = sources.get(config.reward.mode, rewards)
    if function := config.reward.function:
        rewards = f"made by `{bare_name(named(function))}`, this node's own code, of what is {rewards}"
    learned = "A LoRA adapter for" if adapter else "All weights, learned from"
    return f"""---
{data.to_yaml()}
---

# {config.hub.repository.rpartition("/")[2]}

{learned} `{bare_name(base)}`, after {iteration} iterations of GRPO in a codezero swarm.
Rewards are {rewards}{"" if reward is None else f"; the mean of the newest iteration is {reward:.3f}"}.
{exams}

*executed*: attempts were run against their tests in a sandbox. *judged*: what a model believes of them.
"""


def bare_name(name: str) -> str:
    """A folder of this machine is named by its last part alone."""
    return (name if REPOSITORY.fullmatch(name) else Path(name).name).replace("`", "'")


def main(repository: str, folder: str, message: str, seconds: str, private: str = "") -> None:
    """Push with the token on standard input, and print the address of the commit; SIGALRM ends a long push. What the
    hub's own tools saved on this machine is neither read nor changed."""
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
