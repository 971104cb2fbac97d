"""Every setting: its type, unit, bounds and default. Imports nothing heavy.

YAML under `configs/` holds values only; these classes are the schema that `settings.compose` checks it against.
`learning.py`: models, what they learn from; `judging.py`: who says what is right. What is at odds among them is here,
and which of them name code of the user's own."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from annotated_types import Ge, Interval

from codezero.config import learning
from codezero.config.judging import AnswerConfig, AuditConfig, EvalsConfig, EvaluatorConfig, MarketConfig, RewardConfig
from codezero.config.learning import Checked, DataConfig, ExternalConfig, ModelConfig, ProposerConfig, SolverConfig

RUN_NAME = re.compile(r"[^\W.-][\w .+=@,-]{0,119}")  # of a run's folder: one path component that is not hidden
COLDEST = 0.01  # vLLM silently raises lower temperatures to this one
CODE = "code"  # the environment that is no plug-in
# groups of entry points, behind `codezero.`
ENVIRONMENTS, JUDGES, REWARDS, LOSSES = "environments", "judges", "rewards", "losses"
PLUGIN_KEYS = ("environment", "evaluator.object", "reward.function", "solver.loss_function")
# these may name a function that returns rows
SOURCE_KEYS = ("data.sources", "evals.sources", "evaluator.canaries_from")
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


def _repository(name: str) -> None:
    if name and not REPOSITORY.fullmatch(name):
        raise ValueError(f"={name} is no repository of the hub; write OWNER/NAME")


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
    keep: Literal["best", "newest"] = "best"
    """best: besides them the one whose exam has the best lower bound, which is saved whenever an exam begins."""
    stop_at: Annotated[float, Interval(ge=0, le=1)] = 0.0
    """Stop when the lower bound of the exam's average reaches this; 0: never."""
    patience: Annotated[int, Ge(0)] = 0
    """Stop after so many exams in a row whose lower bound is not above the best; 0: never."""
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
    """Attempts under way while the trainer learns; 0: an iteration samples first and learns then. Without servers any
    other number: the next iteration's, from the policy before the step."""
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
    listen: Annotated[str, Checked(lambda listen: listen and host_and_port(listen))] = ""
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


class PluginSlot(NamedTuple):
    """A setting that names code, as `plugins.load_object` takes it."""

    spec: Any
    key: str
    group: str = ""


def plugins_of(config: NodeConfig) -> Iterator[PluginSlot]:
    """The code of the user's own that a node of this config would run."""
    environment = "" if config.environment == CODE else config.environment
    values = (environment, config.evaluator.object, config.reward.function, config.solver.loss_function)
    for value, key, group in zip(values, PLUGIN_KEYS, (ENVIRONMENTS, JUDGES, REWARDS, LOSSES), strict=True):
        if value:
            yield PluginSlot(value, key, group)
    sources = (learning.source_weights(config.data.sources), config.evals.sources, [config.evaluator.canaries_from])
    for names, key in zip(sources, SOURCE_KEYS, strict=True):
        yield from (PluginSlot(name, key) for name in names if learning.is_own_rows(name))


def contradictions(config: NodeConfig) -> Iterator[str]:
    """Say what is at odds with other settings, a line each."""
    for section, settings in (("evaluator", config.evaluator), ("proposer", config.proposer)):
        url = settings.url
        if "@" in url.partition("://")[2].partition("/")[0]:  # before anything could show it
            yield f"{section}.url must hold no password; its key comes from an environment variable"
        endpoint = settings.kind not in ("local", "reward_model", "custom") and settings.model != "off"
        if endpoint and not url.startswith(("http://", "https://")):
            yield f"{section}.url='{url}' is no address; {section}.kind={settings.kind} needs http://HOST:PORT"
    yield from _of_plugins_and_roles(config)
    yield from _of_training(config)
    reward, run = config.reward, config.run
    if not reward.correctness + reward.structure + reward.adherence + reward.format > 0:
        yield "reward: all four weights are 0; give reward.correctness at least some weight"
    if reward.mode != "hybrid" and reward.executed < 1:
        yield f"reward.executed={reward.executed:g} is for reward.mode=hybrid, not {reward.mode}; set that, or drop it"
    if config.evaluator.kind == "reward_model" and config.evaluator.model == EvaluatorConfig.model:
        yield "evaluator.kind=reward_model: nano is a language model; name a reward model with evaluator.model=DIR"
    if config.evaluator.model == "off" and reward.mode != "rlvr":
        yield f"evaluator.model=off leaves reward.mode={reward.mode} without a judge; name one, or set reward.mode=rlvr"
    taken = (Path(config.chain.directory), Path(config.login.directory))
    if run.name and (not RUN_NAME.fullmatch(run.name) or Path(run.directory, run.name) in taken):
        form = "one folder name of letters, digits, `.`, `_` and `-` that is neither the chain's nor the login's"
        yield f"run.name={run.name!r} cannot name a run; use {form} (run.directory says where the folder lies)"


def _of_plugins_and_roles(config: NodeConfig) -> Iterator[str]:
    slots = (("evaluator.kind", config.evaluator.kind, "evaluator.object", config.evaluator.object),
             ("solver.loss", config.solver.loss, "solver.loss_function", config.solver.loss_function))  # fmt: skip
    for key, choice, slot, value in slots:
        if choice == "custom" and not value:
            yield f"{key}=custom needs code of your own; set {slot}=file.py:attribute"
        if choice != "custom" and value:
            yield f"{slot} is used with {key}=custom alone, and {key} is {choice}; set that, or drop {slot}"
    if config.role == "proposer" and config.proposer.model == "off":
        yield "role=proposer with proposer.model=off would do nothing; name a model"
    if config.role == "proposer" and config.swarm.kind == "local":
        yield "role=proposer needs a swarm to propose to; use `codezero propose`, or network=peer"


def _of_training(config: NodeConfig) -> Iterator[str]:
    ranks, rollout, model = config.trainer.ranks, config.rollout, config.model
    if ranks and model.train == "lora":
        yield "model.train=lora with trainer.ranks: the ranks shard all weights; set one of the two back"
    if ranks and config.solver.optimizer == "adamw_8bit":
        yield "solver.optimizer=adamw_8bit with trainer.ranks: it cannot be sharded; set solver.optimizer=adamw"
    if model.quantize == "nf4" and rollout.has_servers:
        yield "model.quantize=nf4 with rollout servers: they read plain weights; drop one of the two"
    if rollout.in_flight and not rollout.has_servers and not rollout.max_staleness:
        yield "rollout.max_staleness=0: attempts in flight without servers are one version old; set it to 1"
    for name, temperature in (("solver", config.solver.temperature), ("evals", config.evals.temperature)):
        if rollout.has_servers and rollout.engine == "vllm" and 0 < temperature < COLDEST:
            what = f"{name}.temperature={temperature:g} is below {COLDEST}, where vLLM does not go"
            yield f"{what}; raise it, or set rollout.engine=little"
