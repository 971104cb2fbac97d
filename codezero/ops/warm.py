"""`codezero warm DATA`: supervised steps on right solutions, those of the data or own attempts that passed."""

import random
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import msgspec
from safetensors import SafetensorError

from codezero.config import NodeConfig
from codezero.environment import Environment
from codezero.environments.build import build_environment
from codezero.errors import ConfigError, ProblemError, translated
from codezero.evals.build import build_exam, build_exam_tasks
from codezero.evaluator.build import build_canaries, build_evaluator
from codezero.fitting import with_solver
from codezero.models.build import Say
from codezero.monitor.run_state import read_exam
from codezero.monitor.run_types import ExamView
from codezero.ops.judge import ROWS_AT_ONCE, executed, sampled
from codezero.problems.filters import Novelty
from codezero.problems.sources import MAX_HELD_BACK, canary_rows
from codezero.sandbox.base import Outcome
from codezero.sandbox.build import build_sandbox
from codezero.solver.build import build_learner, load_policy
from codezero.solver.policy_files import ADAPTER, MODEL
from codezero.system.signals import Share
from codezero.types import Problem

if TYPE_CHECKING:
    from codezero.models.load import LoadedModel
    from codezero.solver.learner import TrlLearner

ROWS = 32  # solutions of a step
READ_SECONDS = 600.0
Solved = tuple[Problem, str]  # a problem, and an answer that is right
Pair = tuple[tuple[int, ...], tuple[int, ...]]  # token ids of a prompt and of an answer, its EOS included


class Warmed(msgspec.Struct, frozen=True):
    """The policy in the folder `model`, and the same exam before and after."""

    model: str
    solutions: int
    steps: int
    likelihood: list[float]  # mean nats of a token, of the solutions of each step before it
    before: ExamView | None
    after: ExamView | None


def warm(config: NodeConfig, data: str, own: int, steps: int, into: Path, say: Say) -> Warmed:
    """Learn the solutions in `data`, none of a problem of the exam, and write the policy to the folder `into`.

    own: not these, but what passes of so many own attempts at each problem. Raises ConfigError, ProblemError,
    ModelError and SandboxError."""
    if into.exists():
        raise ConfigError(f"--into={into} is there already; name another folder")
    alone = replace(config.evaluator, model="off")  # what is learned here is not judged
    config = replace(config, reward=replace(config.reward, mode="rlvr"), evaluator=alone)
    unfinished = into.with_name(f".{into.name}.unfinished")
    unwritable = f"--into={into} cannot be written"
    with ExitStack() as stack:
        with translated(ConfigError, unwritable, OSError):
            unfinished.mkdir(parents=True, exist_ok=True)  # before anything takes long
        stack.callback(shutil.rmtree, unfinished, ignore_errors=True)
        environment, withheld = build_environment(config), Novelty(most=MAX_HELD_BACK)
        config = with_solver(config, environment)
        tasks = build_exam_tasks(config, environment, withheld, say)
        say(f"reading {data}")
        rows = canary_rows(data, withheld=withheld, seconds=READ_SECONDS, whole=True, solved=not own)
        rows = [row for row in rows if not environment.withholds(row.problem)]
        policy = load_policy(config, say)
        from codezero.models.generation import Sampler

        if own:
            solved = passing(config, policy, [row.problem for row in rows], own, stack, say)
        else:
            solved = [(row.problem, f"```python\n{row.right[0].strip()}\n```") for row in rows]
        pairs = written(policy, environment, solved, config)
        canaries = build_canaries(config, withheld, stack, say, environment)
        evaluator = build_evaluator(config, canaries, stack, say, environment=environment)
        exam = build_exam(config, tasks, Sampler(policy), evaluator, stack)

        def examined() -> ExamView | None:
            say("attempting and executing the held-out problems")
            exam.begin(0)
            return read_exam({"iteration": 0, **exam.results(wait=True)})

        before = examined()
        learner = build_learner(replace(config, solver=replace(config.solver, minibatches=1, loss="dapo")), policy)
        likelihood = follow(learner, pairs, steps, config.seed, say)
        after = examined()
        with translated(ConfigError, unwritable, OSError, SafetensorError):
            learner.save(unfinished)
            (unfinished / (MODEL if config.model.train == "full" else ADAPTER)).rename(into)
    return Warmed(str(into), len(pairs), steps, likelihood, before, after)


def passing(
    config: NodeConfig, policy: "LoadedModel", problems: Sequence[Problem], samples: int, stack: ExitStack, say: Say
) -> list[Solved]:
    """Attempt each problem so often, and execute that; the different texts that pass. Raises ModelError, SandboxError,
    and ProblemError when none does."""
    sandbox, step, solved = build_sandbox(config, stack), max(1, ROWS_AT_ONCE // samples), list[Solved]()
    for start in range(0, len(problems), step):
        say(Share("attempting and executing", start, len(problems), " problems"))
        some = problems[start : start + step]
        groups = sampled(policy, some, samples, config.solver.max_new_tokens, config.seed + start)
        for group, row in zip(groups, executed(sandbox, groups), strict=True):
            pairs = zip(group.completions, row, strict=True)
            texts = dict.fromkeys(done.text for done, how in pairs if how.outcome is Outcome.PASS and done.finished)
            solved += [(group.problem, text) for text in texts]
    if not solved:
        tried = f"{samples} own attempts at each of {len(problems)} problems"
        raise ProblemError(f"none of {tried} passed; learn solutions first: leave out --own")
    return solved


def written(
    policy: "LoadedModel", environment: Environment, solved: Sequence[Solved], config: NodeConfig
) -> list[Pair]:
    """Put the solutions in the form that an answer is asked for in. Raises ProblemError when none can be learned."""
    from codezero.models.chat import encode_completions, encode_prompts

    asked = encode_prompts(policy.tokenizer, [environment.prompt(problem) for problem, _ in solved])
    answers = encode_completions(policy.tokenizer, [text for _, text in solved])
    most, longest = config.solver.max_new_tokens, config.solver.max_prompt_tokens
    pairs = [
        (tuple(prompt), (*answer, policy.stop_ids[0]))
        for prompt, answer in zip(asked, answers, strict=True)
        if len(prompt) <= longest and len(answer) < most
    ]
    if not pairs:
        why = f"longer than solver.max_new_tokens={most}, of a longer prompt, or withheld for exams"
        raise ProblemError(f"of {len(solved)} solutions none can be learned: they are {why}")
    return pairs


def follow(learner: "TrlLearner", pairs: Sequence[Pair], steps: int, seed: int, say: Say) -> list[float]:
    """Steps along the gradient of the mean log-likelihood of ROWS answers, all of them equally often; the mean nats of
    a token before each.

    It is that of GRPO's loss where every answer has the advantage 1 and the policy's own probabilities."""
    from codezero.solver.batch import Batch, TrainingRow

    chance, waiting, nats = random.Random(seed), list[Pair](), list[float]()
    for step in range(steps):
        say(Share("learning solutions", step, steps, " steps"))
        while len(waiting) < ROWS:
            waiting += chance.sample(pairs, len(pairs))
        some, waiting = waiting[:ROWS], waiting[ROWS:]
        own = learner.logprobs([prompt for prompt, _ in some], [answer for _, answer in some])
        nats.append(fmean(value for row in own for value in row))
        rows = zip(some, own, strict=True)
        learner.update(Batch(tuple(TrainingRow(*pair, logprobs, 1.0) for pair, logprobs in rows)))
    return nats
