"""Settings of training apart from sampling: the trainer's processes, the servers that decode, the weights between.

The hub that the policy is pushed to, and the addresses that other sections check, are here too.
"""

import re
from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Interval

from codezero.config.learning import Checked

HUB_TOKEN = "HF_TOKEN"  # environment variable
LOGIN_TOKEN = "node.token"  # in login.directory: opens the page's routes for the node
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)


def _addresses(addresses: list[str]) -> None:
    for address in addresses:
        if not address.startswith(("http://", "https://")) or "@" in address:
            raise ValueError(f" has {address}, which is no address; write http://HOST:PORT")


def host_and_port(listen: str) -> tuple[str, int]:
    """Raises ValueError that says what is wrong."""
    host, _, port = listen.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"={listen} is no HOST:PORT; write for example 127.0.0.1:18430, or [::1]:18430")
    return host.strip("[]"), int(port)


LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
ORIGIN = re.compile(f"(?:http://localhost|https://(?:{LABEL}[.])*(?=[a-z]){LABEL})(?::([1-9][0-9]{{0,4}}))?")


def page_origins(names: list[str]) -> None:
    for name in names:
        match, usual = ORIGIN.fullmatch(name), 443 if name.startswith("https") else 80
        if not match or int(match[1] or 0) in (usual, *range(65_536, 100_000)) or len(name) > 253:
            form = "write https://HOST, https://HOST:PORT or http://localhost:PORT"
            raise ValueError(f" has {name}, which no browser names as an origin with passkeys; {form}")


def _listen(listen: str) -> None:
    if listen:
        host_and_port(listen)


def _repository(name: str) -> None:
    if name and not REPOSITORY.fullmatch(name):
        raise ValueError(f"={name} is no repository of the hub; write OWNER/NAME")


@dataclass(kw_only=True)
class TrainerConfig:
    """The optimiser in processes of its own, which hold a shard of the policy each (FSDP2)."""

    ranks: Annotated[int, Interval(ge=0, le=64)] = 0
    """Processes, one a card; 0: this process trains, and holds the whole policy."""
    cards: list[str] = field(default_factory=list[str])
    """Card of each rank; empty: the last visible ones. Without a card the ranks share the CPU."""
    tokens_per_pass: Annotated[int, Interval(ge=16, le=1 << 20)] = 16384
    """Most tokens, padding included, that a rank computes at once; half as many after it ran out of memory."""


@dataclass(kw_only=True)
class RolloutConfig:
    """Servers that decode the solver's attempts while its trainer learns."""

    start: Annotated[int, Interval(ge=0, le=64)] = 0
    """Servers that this node starts, one a card; 0: none."""
    servers: Annotated[list[str], Checked(_addresses)] = field(default_factory=list[str])
    """Addresses of servers on other machines, as `codezero rollout-host` prints them; CODEZERO_ROLLOUT_TOKEN opens
    them."""
    engine: Literal["little", "vllm"] = "little"
    """little: this package's own decoder. vllm: a vLLM server; needs the extra `vllm`."""
    cards: list[str] = field(default_factory=list[str])
    """Card of each server; empty: the first visible ones. Without a card the servers share the CPU."""

    in_flight: Annotated[int, Interval(ge=0, le=4096)] = 0
    """Attempts under way while the trainer learns; 0: an iteration samples first and learns then."""
    max_staleness: Annotated[int, Interval(ge=0, le=1000)] = 4
    """With `in_flight`: versions of the policy between an attempt's first token and its use; older ones are dropped."""

    @property
    def has_servers(self) -> bool:
        return self.start > 0 or bool(self.servers)


@dataclass(kw_only=True)
class WeightsConfig:
    """Versions of the policy on their way to those who decode. The run's folder `weights` holds them."""

    transfer: Literal["full", "delta"] = "delta"
    """full: all weights of each version. delta: those that changed, bit for bit the same."""
    listen: Annotated[str, Checked(_listen)] = ""
    """HOST:PORT at which they are served to `codezero rollout-host`; empty: nowhere. Other hosts than loopback need
    CODEZERO_ROLLOUT_TOKEN."""


@dataclass(kw_only=True)
class HubConfig:
    """Pushing the policy, with a card of the run's own figures. It never delays or stops the training."""

    repository: Annotated[str, Checked(_repository)] = ""
    """OWNER/NAME on the hub; made when it is not there. Empty: nothing is pushed."""
    every: Annotated[int, Interval(ge=1, le=1_000_000)] = 10
    """Rounds from one push to the next."""
    private: bool = True
    """May only its owner read it? A repository that is public already is then refused, not written to."""
    token_file: str = ""
    """File that nobody else may read, with a token that may write there; empty: the variable HF_TOKEN has it. Tokens
    that the hub's own tools saved are neither read nor changed."""
