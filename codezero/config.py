"""Every knob: its type, unit, bounds and default. Imports nothing heavy.

YAML under `configs/` holds values only; these classes are the schema that `compose.py` checks it against.
"""

import re
from dataclasses import dataclass, field

from codezero.config_data import DataConfig
from codezero.config_hub import HubConfig
from codezero.config_model import ModelConfig
from codezero.config_model import bounded as _bounded
from codezero.config_monitor import MonitorConfig
from codezero.config_proposer import ProposerConfig

RUN_NAME = re.compile(r"[^\W.-][\w .+=@,-]{0,119}")
"""Of a run's folder: one path component that is not hidden."""
QUESTIONS = ("likelihood", "yes_no", "per_test", "output_match")
"""What a judge can be asked."""


@dataclass(kw_only=True)
class RunConfig:
    """One run and its folder."""

    name: str = ""
    """Folder below `directory`; empty: the newest run there is resumed, or one is made from the date."""
    directory: str = "runs"
    max_iterations: int = _bounded(0, ge=0)
    """Stop after this many iterations in all; 0: no limit."""
    max_minutes: float = _bounded(0.0, ge=0)
    """Stop after this many minutes of this process; 0: no limit."""
    logs: str = "logs"
    """Folder of the log files."""
    resume: bool = True
    """Go on from the newest checkpoint; False refuses a folder that has one. `codezero run --fresh` begins anew."""
    checkpoint_seconds: float = _bounded(0.0, ge=0)
    """Least time between checkpoints; 0: after every iteration. A crash loses at most this much."""
    keep_checkpoints: int = _bounded(2, ge=1)
    max_failures: int = _bounded(20, ge=1, le=1000)
    """In a row, after which the node stops: iterations in which judging its own attempts, or with role=proposer
    proposing, failed."""
    max_deaths: int = _bounded(15, ge=1, le=1000)
    """With --supervise: in a row, without an iteration saved between them, after which the node is given up. With the
    pauses 15 take about half an hour, in which a judge or a chain that was away at a start may come back."""
    restart_seconds: float = _bounded(1.0, ge=0, le=300)
    """With --supervise: from the first of them to the next start; twice as long each time, up to 300."""


@dataclass(kw_only=True)
class SolverConfig:
    """Sampling and GRPO."""

    group_size: int = _bounded(8, ge=2, le=64)
    """G: completions sampled for each problem."""
    problems_per_iteration: int = _bounded(16, ge=1, le=1024)
    max_new_tokens: int = _bounded(48, ge=1, le=32768)
    max_prompt_tokens: int = _bounded(256, ge=16, le=131072)
    temperature: float = _bounded(1.0, gt=0, le=2)
    learning_rate: float = _bounded(5e-4, gt=0, le=0.1)
    settle_steps: int = _bounded(0, ge=0)
    """The rate falls as 1 / (1 + steps / settle_steps), so that the policy comes to rest; 0: it stays."""
    minibatches: int = _bounded(2, ge=1, le=64)
    """Optimiser steps an iteration's rows are divided into."""
    micro_batch_rows: int = _bounded(64, ge=1)
    """Rows in one forward pass; bounds memory, not the gradient."""
    loss: str = _bounded("dapo", one_of=("dapo", "grpo", "dr_grpo", "bnpo", "cispo"))
    clip_low: float = _bounded(0.2, gt=0, le=1)
    clip_high: float = _bounded(0.28, gt=0, le=10)
    scale_rewards: str = _bounded("none", one_of=("none", "group"))
    """group: divide advantages by the group's standard deviation."""
    kl_beta: float = _bounded(0.0, ge=0, le=10)
    """Weight of the KL leash to the initial model; 0: none is loaded."""
    grad_clip: float = _bounded(1.0, gt=0)
    """Largest gradient norm."""
    refill: float = _bounded(2.0, ge=1, le=8)
    """Most that is sampled in an iteration to replace groups without spread, in batches of problems_per_iteration;
    1: they are not replaced."""
    passes: int = _bounded(1, ge=1, le=16)
    """Times an iteration's rows are learned from; from the second on weighed by `stale`."""
    replay: float = _bounded(0.0, ge=0, le=4)
    """Rows of earlier iterations in an update, for each fresh one; weighed by `stale`."""
    stale: str = _bounded("tis", one_of=("tis", "m2po"))
    """How tokens count that an earlier policy wrote. tis: by their probability ratio, at most 2 times. m2po: by the
    ratio, without those that drifted furthest."""


@dataclass(kw_only=True)
class ExternalConfig:
    """What is learned from peers' attempts, which the own judge has judged anew."""

    policy: str = _bounded("positives", one_of=("positives", "sapo", "off"))
    """positives: attempts better than their group are pushed up, others are left alone. sapo: worse ones are pushed
    down too. off: nothing is."""
    gate: bool = True
    """Learn from a peer only while the own judge finds its attempts at least as good as the own ones?"""
    groups: int = _bounded(16, ge=0, le=1024)
    """Most peers' groups in one update."""
    share: float = _bounded(0.5, ge=0, le=0.95)
    """Most of an update's attempts, own ones that teach nothing included, that may be of peers."""


@dataclass(kw_only=True)
class EvaluatorConfig:
    """The frozen judge."""

    kind: str = _bounded("local", one_of=("local", "openai", "ollama"))
    """local: in this process. openai: an endpoint with log-probs (vLLM and others). ollama: its own interface."""
    model: str = "nano"
    """`nano` (embedded), a directory, or a Hugging Face id; for an endpoint the name it serves."""
    url: str = ""
    """Base address of the endpoint, for example http://127.0.0.1:8000; a key for it comes from CODEZERO_JUDGE_KEY."""
    seconds: float = _bounded(20.0, gt=0, le=3600)
    """Deadline of everything asked of an endpoint for one batch; what is not answered by then is unavailable."""
    requests: int = _bounded(8, ge=1, le=256)
    """Requests under way at an endpoint at once."""
    questions: list[str] = field(default_factory=lambda: list(QUESTIONS))
    """What the judge is asked: any of these; calibration then weighs each by its proven skill."""
    canaries: int = _bounded(400, ge=80, le=20000)
    """Known right and wrong solutions that calibration rests on; the newest count."""
    canaries_from: str = ""
    """JSONL with rows of MBPP or CodeContests in their own form, references included; empty: synthetic ones."""
    canaries_per_iteration: int = _bounded(16, ge=0, le=1024)
    """Fresh ones judged in each iteration, unmarked among the others."""
    refit_every: int = _bounded(50, ge=0)
    """Iterations between two calibrations; 0: only at the start."""
    on_alarm: str = _bounded("tighten", one_of=("tighten", "warn", "stop"))
    """When the judge is found exploited. tighten: calibrate anew at once, and stop when that does not help."""
    batch_rows: int = _bounded(128, ge=1)
    guard_seconds: float = _bounded(2.0, gt=0)
    """CPU seconds of the static pass for one completion; four times as long on the clock."""
    guard_memory_mib: int = _bounded(512, ge=128)


@dataclass(kw_only=True)
class RewardConfig:
    """What a completion earns: cap * (the four parts, weighted; weights are divided by their sum)."""

    mode: str = _bounded("judge", one_of=("judge", "rlvr"))
    """judge: nothing is executed. rlvr: correctness is the outcome of running the tests in a sandbox."""
    correctness: float = _bounded(0.70, ge=0, le=1)
    structure: float = _bounded(0.15, ge=0, le=1)
    adherence: float = _bounded(0.10, ge=0, le=1)
    format: float = _bounded(0.05, ge=0, le=1)


@dataclass(kw_only=True)
class AuditConfig:
    """Execution of a sample of the judged attempts, outside the reward, to see how far the judge can be believed."""

    share: float = _bounded(0.0, ge=0, le=1)
    """Of the judged attempts; 0: nothing is executed."""
    sandbox: str = _bounded("auto", one_of=("auto", "monty", "bubblewrap"))
    """auto: the Monty interpreter, and bubblewrap where that could not tell and the kernel allows it."""
    window: int = _bounded(2000, ge=50, le=100_000)
    """Newest executed attempts that the figures are of."""


@dataclass(kw_only=True)
class SwarmConfig:
    """How nodes find and hear each other."""

    kind: str = _bounded("local", one_of=("local", "hivemind"))
    name: str = "codezero"
    """Nodes with different names never mix."""
    identity: str = "swarm.pem"
    """Private key file whose hash is the peer id; made at the first start."""
    bootstrap: list[str] = field(default_factory=list[str])
    """Multiaddresses of nodes to join; empty: found a swarm."""
    host: str = "127.0.0.1"
    """Interface the peer-to-peer daemon listens on; 0.0.0.0 to be reachable from other machines."""
    port: int = _bounded(0, ge=0, le=65535)
    """TCP port of the peer-to-peer daemon; 0: any free one."""
    members: str = ""
    """Text file with the peer ids that belong to a private swarm, one a line, read again when it changes; `registry`:
    those registered on the chain; empty: whoever comes."""
    announce: list[str] = field(default_factory=list[str])
    """Multiaddresses that others are told, for example [/ip4/203.0.113.5/tcp/38331] behind a forwarded port; empty:
    those that the daemon sees."""
    reachable: str = _bounded("auto", one_of=("auto", "yes", "no"))
    """Can others dial this node? auto: neighbours are asked to try. no: it looks for a relay, and leaves its rollouts
    in the DHT."""
    relay: bool = True
    """May nodes that cannot be reached be reached through this one?"""
    poll_seconds: float = _bounded(1.0, gt=0, le=600)
    """Pause between two looks for peers' announcements; up to eight times that, or 8, while nothing is new."""
    pull_groups: int = _bounded(32, ge=0, le=1024)
    """Most peers' groups pulled from one iteration to the next."""


@dataclass(kw_only=True)
class ChainConfig:
    """Who keeps the round, and where points go."""

    kind: str = _bounded("embedded", one_of=("embedded", "rpc", "clock"))
    """embedded: a chain of this machine's own, served on loopback and started when it is needed. rpc: any EVM chain.
    clock: none; rounds go by the clock, at the same moments on every node, and points are not counted."""
    round_seconds: float = _bounded(60.0, gt=0, le=31_536_000)
    """How long whoever may open rounds lets one last; less, when everybody has submitted."""
    submit_after: float = _bounded(45.0, ge=0, le=31_536_000)
    """Seconds after its first points at which a round's points are submitted, though it is still open; points that come
    later count in the next one. 0: when it is over."""
    directory: str = "runs/chain"
    """Of the embedded chain."""
    port: int = _bounded(0, ge=0, le=65535)
    """TCP port of the embedded chain; 0: the one it had last time, or any free one."""
    rpc_urls: list[str] = field(default_factory=list[str])
    """Endpoints of the chain, tried in turn."""
    chain_id: int = _bounded(0, ge=0, le=2**53 - 1)
    """What the endpoints have to say it is; 0 for the embedded chain: whatever it is."""
    contract: str = ""
    """Address of the swarm's contract; empty with the embedded chain: its own, deployed at the first start."""
    plain_http: bool = False
    """May endpoints on other machines be asked without encryption? For a network of one's own."""
    wallet: str = "wallet.json"
    """Keystore of the account that registers this node and takes its points; made at the first start, with its
    passphrase in a file beside it."""
    passphrase_file: str = ""
    """File with the passphrase of a keystore that has none beside it; empty: see the next."""
    passphrase_variable: str = ""
    """Name of the environment variable that holds it; empty: it is asked for."""
    signer: str = ""
    """URL of a program that signs instead of a keystore."""
    signer_token: str = ""
    """File with the token that the signer wants."""
    account: str = ""
    """Address that the signer has to sign for."""
    alchemy_policy: str = ""
    """Gas policy of Alchemy's that pays for this node's transactions; empty: the account pays."""
    alchemy_key_file: str = ""
    """File with the API key that the policy belongs to."""
    alchemy_key_variable: str = ""
    """Or the name of the environment variable that holds it."""
    alchemy_url: str = "https://api.g.alchemy.com/v2"
    alchemy_delegates: list[str] = field(default_factory=lambda: ["0x69007702764179f14F51cdce752f4f775d74E139"])
    """Contracts that the account may follow (EIP-7702): Alchemy's Modular Account v2."""


@dataclass(kw_only=True)
class LoginConfig:
    """The page on this machine: it shows what the node does, and logs its owner in."""

    page: str = _bounded("auto", one_of=("auto", "on", "off"))
    """auto: served, unless nobody is to see anything (monitor.view=off)."""
    port: int = _bounded(3000, ge=1, le=65535)
    """On 127.0.0.1 and ::1, and nowhere else."""
    publish: bool = False
    """For a container: also where a port that its engine publishes arrives, and there for the host alone."""
    directory: str = "runs/login"
    """Where it keeps who the owner is, and his account's key as cipher text."""
    days: float = _bounded(30.0, gt=0, le=3650)
    """How long a login lasts, for the browser and for the node."""
    legacy_clients: bool = False
    """Answer programs of the original's, which know no token, on the routes of the original?"""


@dataclass(kw_only=True)
class EvalsConfig:
    """Executed truth, beside the reward."""

    every: int = _bounded(25, ge=0)
    """Iterations between two exams; 0: never. Two more come after a fifth and two fifths of the first ones."""
    problems: int = _bounded(200, ge=5, le=10000)
    """Held-out problems, spread evenly over the five levels."""
    samples: int = _bounded(8, ge=1, le=256)
    """n: attempts at each held-out problem."""
    seed: int = _bounded(20_000, ge=0)
    """Chooses the held-out problems and the sampling noise; the same on every node, so that figures compare."""


@dataclass(kw_only=True)
class NodeConfig:
    """One node."""

    role: str = _bounded("node", one_of=("node", "proposer"))
    """node: attempts, judges, learns, proposes. proposer: only proposes, for a swarm (`codezero propose`)."""
    seed: int = _bounded(0, ge=0)
    run: RunConfig = field(default_factory=RunConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    solver: SolverConfig = field(default_factory=SolverConfig)
    external: ExternalConfig = field(default_factory=ExternalConfig)
    evaluator: EvaluatorConfig = field(default_factory=EvaluatorConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    audit: AuditConfig = field(default_factory=AuditConfig)
    proposer: ProposerConfig = field(default_factory=ProposerConfig)
    data: DataConfig = field(default_factory=DataConfig)
    swarm: SwarmConfig = field(default_factory=SwarmConfig)
    chain: ChainConfig = field(default_factory=ChainConfig)
    login: LoginConfig = field(default_factory=LoginConfig)
    hub: HubConfig = field(default_factory=HubConfig)
    evals: EvalsConfig = field(default_factory=EvalsConfig)
    monitor: MonitorConfig = field(default_factory=MonitorConfig)
