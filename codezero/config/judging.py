"""Settings of who says whether an attempt is right: judge, reward, audit and exam."""

import re
from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, Interval

from codezero.config.learning import MAX_SOURCES, Checked, Plugin, check_commas, is_path, named

QUESTIONS = ("likelihood", "yes_no", "per_test", "output_match", "probe")  # kinds of judge prompts
EXAMS = ("synthetic", "mbpp_test")  # sets of the exam that have a name; nothing is learned from them


def _questions(names: list[str]) -> None:
    unknown = [name for name in names if name not in QUESTIONS]
    if unknown or not names:
        what = f" has the unknown {unknown[0]}" if unknown else " is empty"
        raise ValueError(f"{what}; choose some of: {', '.join(QUESTIONS)}")


def _exam_sources(sources: list[str]) -> None:
    check_commas(sources, EXAMS)
    for name in sources:
        if name not in EXAMS and not is_path(name):
            raise ValueError(f" has the unknown {name}; choose some of: {', '.join(EXAMS)}, or a path with a / in it")
    if not 0 < len(set(sources)) == len(sources) <= MAX_SOURCES:
        raise ValueError(f": {len(sources)} sources, not 1 to {MAX_SOURCES} different ones")


def _package_names(names: list[str]) -> None:
    odd = next((name for name in names if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name)), None)
    if odd is not None:
        raise ValueError(f": {odd[:40]!r} is no name of a package, as numpy is; versions are those that are installed")


@dataclass(kw_only=True)
class EvaluatorConfig:
    """The frozen judge."""

    kind: Literal["local", "reward_model", "openai", "ollama", "chat", "custom"] = "local"
    """local: a language model in this process. reward_model: there too, a classifier with one logit. openai: an
    endpoint with log-probs (vLLM and others). ollama: its own interface. chat: an endpoint that answers in words alone.
    custom: `object`."""
    object: Plugin = ""
    """Own code: an `evaluator.types.Judge`, or whatever has score(question, code) -> float | None, or is that."""
    model: str = "nano"
    """`nano` (embedded), a directory, or a Hugging Face id; for an endpoint the name it serves; `off`: none, with
    reward.mode=rlvr. With kind=custom what `object` names."""
    system: str = ""
    """System turn of a reward model's conversations, as it was trained with; empty: none."""
    url: str = ""
    """Base address of the endpoint, for example http://127.0.0.1:8000; a key for it comes from CODEZERO_JUDGE_KEY."""
    seconds: Annotated[float, Interval(gt=0, le=3600)] = 20.0
    """Deadline of all requests to an endpoint for one batch; what is not answered by then is unavailable."""
    requests: Annotated[int, Interval(ge=1, le=256)] = 8
    """Concurrent requests to an endpoint."""
    calls: Annotated[int, Ge(0)] = 0
    """With kind=chat: most requests of a process, each of which a host may charge for; 0: no limit."""
    questions: Annotated[list[str], Checked(_questions)] = field(default_factory=lambda: list(QUESTIONS))
    """Kinds of judge prompts; calibration weighs each by its proven skill. A probe, where there is one, goes alone."""
    probe: str = "auto"
    """File of `codezero judge train`: a direction in the judge's hidden states. auto: a shipped one, if it is of this
    judge; none: none."""
    canaries: Annotated[int, Interval(ge=80, le=20000)] = 400
    """Known right and wrong solutions for the calibration, the newest ones."""
    canaries_from: str = ""
    """JSONL with rows of MBPP or CodeContests in their own form, references included; empty: of data.sources."""
    canaries_per_iteration: Annotated[int, Interval(ge=0, le=1024)] = 16
    """New canaries judged in each iteration, unmarked among the completions."""
    refit_every: Annotated[int, Ge(0)] = 50
    """Iterations between two calibrations; 0: only at the start."""
    on_alarm: Literal["tighten", "warn", "stop"] = "tighten"
    """When the policy exploits the judge. tighten: calibrate again at once, and stop when that does not help."""
    batch_rows: Annotated[int, Ge(1)] = 128
    """Prompts in one forward pass of the judge."""

    def __post_init__(self) -> None:
        if self.kind == "custom" and self.object:
            self.model = named(self.object)

    @property
    def in_process(self) -> bool:
        """Are its weights loaded here?"""
        return self.kind in ("local", "reward_model")


@dataclass(kw_only=True)
class AnswerConfig:
    """Which part of an attempt is its answer, wherever attempts are read."""

    block: Literal["only", "last", "best"] = "best"
    """only: the one python block. last: the last that defines the function. best: with helpers of others, or bare."""


@dataclass(kw_only=True)
class RewardConfig:
    """Reward of a completion: cap * (weighted mean of the four parts)."""

    mode: Literal["judge", "rlvr", "hybrid"] = "judge"
    """judge: nothing is executed. rlvr: the tests decide, run in a sandbox. hybrid: where that can tell."""
    executed: Annotated[float, Interval(gt=0, le=1)] = 1.0
    """With mode=hybrid: share of the attempts that are executed, drawn by chance; the judge decides the others."""
    function: Plugin = ""
    """Own code: `types.ScoredGroup` -> a reward from 0 to 1 for each attempt, None to mask it, in the place of the four
    parts. Correctness stays what was judged."""
    correctness: Annotated[float, Interval(ge=0, le=1)] = 0.70
    """Weight of what was judged or executed."""
    structure: Annotated[float, Interval(ge=0, le=1)] = 0.15
    """Weight of a program that could work: it parses, can be called, returns a value, defines its names."""
    adherence: Annotated[float, Interval(ge=0, le=1)] = 0.10
    """Weight of what was asked for and nothing else: signature, parameters used, no answers copied from tests."""
    format: Annotated[float, Interval(ge=0, le=1)] = 0.05
    """Weight of one closed code block and an end of text."""
    test_seconds: Annotated[float, Interval(gt=0, le=3600)] = 6.0
    """Processor time of one test in a jail, wherever code is executed; twice that, and two, by the clock."""
    program_seconds: Annotated[float, Interval(gt=0, le=36_000)] = 100.0
    """The same of all tests of a program."""
    workers: Annotated[int, Interval(ge=0, le=1024)] = 0
    """Programs executed at once; 0: one for each core but one, 16 at most. No result depends on it."""


@dataclass(kw_only=True)
class AuditConfig:
    """Execution of a sample of the judged completions, outside the reward, to measure the judge."""

    share: Annotated[float, Interval(ge=0, le=1)] = 0.0
    """Share of the judged completions; 0: nothing is executed."""
    sandbox: Literal["auto", "monty", "bubblewrap"] = "auto"
    """auto: the Monty interpreter; bubblewrap where Monty lacks a feature and the kernel allows it."""
    packages: Annotated[list[str], Checked(_package_names)] = field(default_factory=list[str])
    """Installed packages, such as numpy, that executed programs may import, with what they need; in bubblewrap only."""


@dataclass(kw_only=True)
class EvalsConfig:
    """Executed truth, beside the reward."""

    every: Annotated[int, Ge(0)] = 25
    """Iterations between two exams; 0: never. Two more come after a fifth and two fifths of the first ones."""
    sources: Annotated[list[str], Checked(_exam_sources)] = field(default_factory=lambda: ["synthetic"])
    """synthetic (embedded), mbpp_test (of the hub), a path of rows, or SET:FILE with a set of `codezero eval`."""
    problems: Annotated[int, Interval(ge=5, le=10000)] = 200
    """Held-out problems, spread evenly over the sources, of the embedded ones over the five levels."""
    samples: Annotated[int, Interval(ge=1, le=256)] = 8
    """n: attempts at each held-out problem; at temperature 0, where all would be the same, there is one."""
    temperature: Annotated[float, Interval(ge=0, le=2)] = 1.0
    """Temperature of sampling the exam's attempts; 0: greedy, the likeliest token each time."""
    seed: Annotated[int, Ge(0)] = 20_000
    """Chooses the held-out problems and the sampling noise; the same on every node, so that figures compare."""

    @property
    def controls(self) -> int:
        """Embedded problems beside an exam of other sets."""
        return min(20, self.problems // 4)

    @property
    def attempts(self) -> int:
        """At each problem."""
        return self.samples if self.temperature else 1


@dataclass(kw_only=True)
class MarketConfig:
    """The prediction market of a swarm with peers. Play points alone are at stake."""

    enabled: bool = False
    """Report on others' attempts by itself, and have own ones reported on."""
    execute: bool = False
    """Settle games by executing their programs in the sandbox; without it the own judge settles them."""
    games: Annotated[int, Interval(ge=0, le=16)] = 16
    """Others' games of a round that are played."""
