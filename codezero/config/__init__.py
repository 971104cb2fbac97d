"""Every setting: its type, unit, bounds and default. Imports nothing heavy.

YAML under `configs/` holds values only; these classes are the schema that `settings.compose` checks it against.
`learning.py`: models, what they learn from; `judging.py`: who says what is right; `training.py`: trainer, servers;
`contradictions.py`: what is at odds among them.
"""

import re
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Ge, Interval

from codezero.config.judging import AnswerConfig, AuditConfig, EvalsConfig, EvaluatorConfig, MarketConfig, RewardConfig
from codezero.config.learning import Checked, DataConfig, ExternalConfig, ModelConfig, ProposerConfig, SolverConfig
from codezero.config.training import HubConfig, RolloutConfig, TrainerConfig, WeightsConfig, page_origins

RUN_NAME = re.compile(r"[^\W.-][\w .+=@,-]{0,119}")  # of a run's folder: one path component that is not hidden


@dataclass(kw_only=True)
class RunConfig:
    """One run and its folder."""

    name: str = ""
    """Folder below `directory`; empty: the newest run there is resumed, or one is made from the date."""
    directory: str = "runs"
    """Folder of the runs."""
    max_iterations: Annotated[int, Ge(0)] = 0
    """Stop after this many iterations in all; 0: no limit."""
    max_minutes: Annotated[float, Ge(0)] = 0.0
    """Stop after this many minutes of this process; 0: no limit."""
    logs: str = "logs"
    """Folder of the log files."""
    resume: bool = True
    """Go on from the newest checkpoint; False refuses a folder that has one. `codezero run --fresh` begins anew."""
    checkpoint_seconds: Annotated[float, Ge(0)] = 0.0
    """Least time between checkpoints; 0: after every iteration. A crash loses at most this much."""
    keep_checkpoints: Annotated[int, Ge(1)] = 2
    """Newest checkpoints that stay."""
    max_failures: Annotated[int, Interval(ge=1, le=1000)] = 20
    """Iterations in a row without judging own attempts, or with role=proposer without proposing, that end the node."""
    max_deaths: Annotated[int, Interval(ge=1, le=1000)] = 15
    """With --supervise: in a row, without an iteration saved between, after which it is given up; 15: half an hour."""
    restart_seconds: Annotated[float, Interval(ge=0, le=300)] = 1.0
    """With --supervise: from the first of them to the next start; twice as long each time, up to 300."""


REGISTRY = "registry"  # the word for the peers that are registered on the chain
MEMBERS = "network/members.txt"  # below a run's folder, where the swarm reads them


@dataclass(kw_only=True)
class SwarmConfig:
    """Finding other nodes, and the exchange with them."""

    kind: Literal["local", "hivemind"] = "local"
    """local: no network. hivemind: the peer-to-peer network; network=peer sets it."""
    name: str = "codezero"
    """Nodes with different names never mix."""
    identity: str = "swarm.pem"
    """Private key file whose hash is the peer id; made at the first start."""
    bootstrap: list[str] = field(default_factory=list[str])
    """Multiaddresses of nodes to join; empty: found a swarm."""
    host: str = "127.0.0.1"
    """Interface the peer-to-peer daemon listens on; 0.0.0.0 to be reachable from other machines."""
    port: Annotated[int, Interval(ge=0, le=65535)] = 0
    """TCP port of the peer-to-peer daemon; 0: any free one."""
    members: str = ""
    """Who may come: a file with a peer id a line, read again when it changes; `registry`: the chain's; empty: all."""
    announce: list[str] = field(default_factory=list[str])
    """Multiaddresses for others, such as [/ip4/203.0.113.5/tcp/38331] behind a forwarded port; empty: those seen."""
    reachable: Literal["auto", "yes", "no"] = "auto"
    """Can others dial this node? auto: peers try. no: it keeps no records of others, who get its rollouts by relays."""
    relay: bool = True
    """Does it relay rollouts between members that do not reach each other? 1 MiB a second at most, 128 KiB a member."""
    poll_seconds: Annotated[float, Interval(gt=0, le=600)] = 1.0
    """Pause between two looks for peers' announcements; up to eight times that, or 8, while nothing is new."""
    pull_groups: Annotated[int, Interval(ge=0, le=1024)] = 32
    """Most peers' groups pulled from one iteration to the next."""
    invitation: str = ""
    """File that whoever comes with the founder's code gets; `swarm create` and `swarm join` set it for the founder."""


@dataclass(kw_only=True)
class ChainConfig:
    """Who keeps the round, and where points go."""

    kind: Literal["embedded", "rpc", "clock"] = "embedded"
    """embedded: this machine's own, on loopback, started when needed. rpc: any EVM chain. clock: none; rounds go by the
    clock, at the same moments on every node, and points are not counted."""
    round_seconds: Annotated[float, Interval(gt=0, le=31_536_000)] = 60.0
    """Length of a round in seconds; it ends earlier once every active peer has submitted."""
    submit_after: Annotated[float, Interval(ge=0, le=31_536_000)] = 45.0
    """Seconds from a round's first points to their submission; later points count in the next round. 0: at its end."""
    directory: str = "runs/chain"
    """Folder of the embedded chain."""
    port: Annotated[int, Interval(ge=0, le=65535)] = 0
    """TCP port of the embedded chain; 0: the one it had last time, or any free one."""
    rpc_urls: list[str] = field(default_factory=list[str])
    """Endpoints of the chain, tried in turn; a multiaddress is a node that passes questions on to its own chain."""
    chain_id: Annotated[int, Interval(ge=0, le=2**53 - 1)] = 0
    """Id that the endpoints have to report; 0 for the embedded chain: any."""
    contract: str = ""
    """Address of the swarm's contract; empty with the embedded chain: its own, deployed at the first start."""
    contract_block: Annotated[int, Interval(ge=0, le=2**53 - 1)] = 0
    """The block that it was deployed in: what happened before is not looked at. An invitation names it."""
    plain_http: bool = False
    """May endpoints on other machines be asked without encryption? For a network of one's own."""
    wallet: str = "wallet.json"
    """Keystore of the account that registers this node and takes its points; made, with a passphrase file beside it."""
    passphrase_file: str = ""
    """File with the passphrase of a keystore that has none beside it; empty: see the next."""
    passphrase_variable: str = ""
    """Name of the environment variable that holds it; empty: it is asked for."""


@dataclass(kw_only=True)
class LoginConfig:
    """The page on this machine: it shows what the node does, and logs its owner in."""

    page: Literal["auto", "on", "off"] = "auto"
    """auto: served, unless nobody is to see anything (monitor.view=off)."""
    port: Annotated[int, Interval(ge=1, le=65535)] = 3000
    """On 127.0.0.1 and ::1, and nowhere else."""
    origins: Annotated[list[str], Checked(page_origins)] = field(default_factory=list[str])
    """Further ones of the page: https://HOST of a proxy, http://localhost:OTHER of `ssh -L`. A passkey has one host."""
    publish: bool = False
    """For a container: also where a port that its engine publishes arrives, and there for the host alone."""
    directory: str = "runs/login"
    """Where it keeps who the owner is, and his account's key as cipher text."""
    days: Annotated[float, Interval(gt=0, le=3650)] = 30.0
    """Days that a login lasts, for the browser and for the node."""


@dataclass(kw_only=True)
class MonitorConfig:
    """metrics.jsonl is always written. Where else measurements go never delays or stops the training."""

    view: Literal["auto", "live", "plain", "off"] = "auto"
    """auto: live on a terminal, plain lines elsewhere."""
    wandb: str = ""
    """[ENTITY/]PROJECT of Weights & Biases; empty: none. Without WANDB_API_KEY: to logs/wandb. Needs extra `wandb`."""


@dataclass(kw_only=True)
class NodeConfig:
    """One node."""

    role: Literal["node", "proposer"] = "node"
    """node: attempts, judges, learns, proposes. proposer: only proposes, for a swarm (`codezero propose`)."""
    seed: Annotated[int, Ge(0)] = 0
    """Seed of problems and sampling; another one is another run."""
    environment: Any = "code"
    """Task that is learned: `code`, a name that a plug-in has, module:attribute or file.py:attribute of a taskset, or a
    mapping with _target_ and its arguments. Its code runs with this node's rights. docs/environments.md"""
    run: RunConfig = field(default_factory=RunConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    solver: SolverConfig = field(default_factory=SolverConfig)
    external: ExternalConfig = field(default_factory=ExternalConfig)
    evaluator: EvaluatorConfig = field(default_factory=EvaluatorConfig)
    answer: AnswerConfig = field(default_factory=AnswerConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    audit: AuditConfig = field(default_factory=AuditConfig)
    proposer: ProposerConfig = field(default_factory=ProposerConfig)
    data: DataConfig = field(default_factory=DataConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    weights: WeightsConfig = field(default_factory=WeightsConfig)
    swarm: SwarmConfig = field(default_factory=SwarmConfig)
    chain: ChainConfig = field(default_factory=ChainConfig)
    market: MarketConfig = field(default_factory=MarketConfig)
    login: LoginConfig = field(default_factory=LoginConfig)
    hub: HubConfig = field(default_factory=HubConfig)
    evals: EvalsConfig = field(default_factory=EvalsConfig)
    monitor: MonitorConfig = field(default_factory=MonitorConfig)
