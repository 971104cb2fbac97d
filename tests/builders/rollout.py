"""A trainer's side without a trainer: versions of the embedded solver, and little servers that follow them."""

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch

from codezero.models.generation import Drawn, OwnLoop
from codezero.models.load import LoadedModel, load_model, use_threads
from codezero.nano import weights_directory
from codezero.rollout.build import start_servers
from codezero.rollout.client import RolloutServer, RolloutServers, Sampling, requests
from codezero.settings import compose
from codezero.weights.versions import PolicyVersion, Publisher

PROMPTS = [[5, 6, 7], [9] * 20, [300, 400], [11, 500, 13, 14]]


class VersionedPolicy:
    """The embedded solver in float32 whose weights are always those of its newest version, rounded to bfloat16."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.number = folder, -1
        self.publisher = Publisher(folder)
        self.loaded: LoadedModel = load_model(str(weights_directory("solver")), device="cpu", role="solver")
        use_threads(self.loaded.model, 0)
        self._generator = torch.Generator().manual_seed(0)

    def publish(self, *, anchor: bool = False, share: float = 0.05) -> PolicyVersion:
        """Move a share of all weights by a tenth of their tensor's size."""
        self.number += 1
        with torch.no_grad():
            for weight in self.loaded.model.parameters():
                moved = torch.rand(weight.shape, generator=self._generator) < share
                noise = torch.randn(weight.shape, generator=self._generator) * weight.abs().mean() * 0.3
                weight.copy_((weight + noise * moved).bfloat16().float())
        return self.publisher.publish(self.number, dict(self.loaded.model.named_parameters()), anchor=anchor)

    def draw(self, repeats: int = 4, most: int = 12, seed: int = 5) -> list[Drawn]:
        """As this process draws: each prompt by itself with the seed that its request has."""
        asked = requests(len(PROMPTS), Sampling(repeats, most, 1.0, seed, [*self.loaded.stop_ids]))
        loop = OwnLoop(self.loaded)
        return [
            draw._replace(version=self.number)
            for prompt, params in zip(PROMPTS, asked, strict=True)
            for draw in loop.draw([prompt], repeats, most, 1.0, params.seed)
        ]


@contextmanager
def little_servers(folder: Path, count: int, logs: Path) -> Generator[list[RolloutServer]]:
    words = [f"rollout.start={count}", "model.device=cpu", "model.precision=float32", f"run.logs={logs}"]
    with ExitStack() as stack:
        yield start_servers(compose(words), str(folder), lambda _: None, stack)


@contextmanager
def client_of(
    policy: VersionedPolicy, servers: Sequence[RolloutServer], patience: float = 60.0, max_requests: int = 8
) -> Generator[RolloutServers]:
    client = RolloutServers(
        servers=servers, vocabulary=768, stop_ids=policy.loaded.stop_ids, max_requests=max_requests, patience=patience
    )
    try:
        yield client
    finally:
        client.close()


def nearly(drawn: Sequence[Drawn], wanted: Sequence[Drawn], most: float = 1e-4) -> bool:
    """The same tokens and versions, and log-probabilities that differ by `most`."""
    same = [(draw.ids, draw.version) for draw in drawn] == [(draw.ids, draw.version) for draw in wanted]
    pairs = zip(drawn, wanted, strict=True)
    return same and all(abs(a - b) <= most for x, y in pairs for a, b in zip(x.logprobs, y.logprobs, strict=True))
