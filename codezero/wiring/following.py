"""A peer's policy as the one that a run begins with, if the exam finds it better; and the own one for peers to pull."""

# pyright: reportUnknownMemberType=false

import logging
import shutil
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.json import encode

from codezero.config import NodeConfig
from codezero.errors import ChainError, SwarmError, WeightsError
from codezero.monitor.monitor import RunMonitor
from codezero.runs import RunFolder
from codezero.solver.checkpoint import checkpoints_in
from codezero.swarm.hivemind_swarm import HivemindSwarm
from codezero.weights import MANIFEST
from codezero.wiring.evals import examine
from codezero.wiring.models import load
from codezero.wiring.proposer import PartsLater

logger = logging.getLogger(__name__)

FOLLOWED, MODEL, ABOUT = "followed", "model", "about.txt"
"""Folder of a run with the policy that it began from, if that was a peer's, and with what was found about it."""
PATIENCE = 120.0
"""Seconds to wait for the peer's announcement."""
LOOK_SECONDS = 3.0
"""Between two looks for a peer that announces no versions yet."""
FIRST_SECONDS, LEAST_RATE = 30.0, 1 << 18
"""A file may take so long, and a second more for every so many bytes."""


class SwarmSource:
    """One peer's versions, as `weights.versions.VersionSource` wants them: a stranger's data, bounded, not checked."""

    def __init__(self, swarm: HivemindSwarm, peer: str, say: Callable[[str], None], patience: float = 0.0) -> None:
        """patience: seconds to wait for a manifest."""
        self.peer, self._swarm, self._say, self._patience = peer, swarm, say, patience

    @contextmanager
    def file(self, name: str, most: int) -> Generator[Path]:
        with TemporaryDirectory(prefix="codezero-versions-") as folder:
            yield self._fetched(name, most, Path(folder))

    def _fetched(self, name: str, most: int, folder: Path) -> Path:
        digest = None if name == MANIFEST else bytes.fromhex(name.partition(".")[0])
        deadline = time.monotonic() + (0.0 if digest else self._patience)
        if digest:
            self._say(f"pulling {name[:12]} of {self.peer}, {most / 1e6:.1f} MB")
        while True:
            path = folder / str(time.monotonic_ns())  # of this try alone: an answer to the one before may be late
            try:
                self._swarm.fetch(self.peer, digest, most, path, FIRST_SECONDS + most / LEAST_RATE)
                return path
            except SwarmError as error:
                if (left := deadline - time.monotonic()) <= 0:
                    raise WeightsError(str(error)) from error
                self._say(f"waiting up to {left:.0f} s for the policy of {self.peer}: {error}")
                time.sleep(min(left, LOOK_SECONDS))


def share_versions(swarm: HivemindSwarm, folder: Path) -> None:
    """Announce what a `Publisher` has in its folder."""
    from codezero.weights.transfer import FolderSource
    from codezero.weights.versions import read_manifest

    manifest = read_manifest(FolderSource(folder))
    swarm.share(encode(manifest), [folder / name for name in manifest.files()])


def begin_from_peer(
    config: NodeConfig, folder: RunFolder, swarm: HivemindSwarm, chain: PartsLater, monitor: RunMonitor
) -> NodeConfig:
    """`config` with the policy of `weights.follow` as its solver, where the run begins or began with that.

    Whatever is wrong with the peer is one warning, and the run begins with its own policy. Raises ModelError.
    """
    place, peer = folder.path / FOLLOWED, config.weights.follow
    if config.role == "sampler":  # an adapter has nothing to learn
        config = _with_model(config, train="full")
    if not place.exists() and not checkpoints_in(folder.checkpoints):
        try:
            swarm.play(chain().coordinator.current_round())
            _follow(config, place, SwarmSource(swarm, peer, monitor.busy, PATIENCE), swarm, monitor)
        except (ChainError, SwarmError, WeightsError) as error:
            logger.warning("beginning with the own policy: %s", error)
            monitor.add_facts(followed=f"nobody: {error}")
    if place.exists():
        monitor.add_facts(followed=(place / ABOUT).read_text())
    return _with_model(config, solver=str(place / MODEL)) if (place / MODEL).is_dir() else config


def _follow(config: NodeConfig, place: Path, source: SwarmSource, swarm: HivemindSwarm, monitor: RunMonitor) -> None:
    """Pull, compare, and keep what is better by its interval. Raises SwarmError and WeightsError: nothing was kept."""
    from codezero.weights.state import layout_of
    from codezero.weights.versions import catch_up

    policy = load(_with_model(config, train="full"), config.model.solver, "solver", monitor.busy, for_training=True)
    parameters = dict(policy.model.named_parameters())
    swarm.tokenizer_digest = policy.tokenizer_digest
    weights, version = catch_up(source, layout=layout_of(parameters))
    weights.copy_to(parameters)
    with TemporaryDirectory(dir=place.parent) as staging:
        fresh, model = Path(staging) / FOLLOWED, Path(staging) / FOLLOWED / MODEL
        policy.model.save_pretrained(model)
        policy.tokenizer.save_pretrained(model)
        del policy, parameters, weights
        about = f"{source.peer}, version {version.number}"
        if config.role == "node" and config.evals.every:
            own, _ = _average(config, monitor)
            other, low = _average(_with_model(config, solver=str(model)), monitor)
            about += f", executed average@{config.evals.attempts} {other:.1%} against {own:.1%} of the own policy: "
            about += "kept" if low > own else "put away"
            if low <= own:
                shutil.rmtree(model)
        (fresh / ABOUT).write_text(about)
        fresh.rename(place)
    logger.warning("followed %s", about)


def _average(config: NodeConfig, monitor: RunMonitor) -> tuple[float, float]:
    """And the lower end of its 95 % interval; 0 where no attempt could be decided."""
    figures = examine(config, monitor.busy)
    return float(figures[f"eval/average_at_{config.evals.attempts}"] or 0.0), float(figures["eval/ci_low"] or 0.0)


def _with_model(config: NodeConfig, **changes: str) -> NodeConfig:
    return replace(config, model=replace(config.model, **changes))
