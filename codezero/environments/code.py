"""The environment `code`: questions that a Python function or program answers, judged by a model that reads it.

It is the one whose problems travel whole: they are written by models and people, and derived by nobody."""

from random import Random

from codezero.code.assertions import examples
from codezero.environment import Environment
from codezero.problems.filters import CURATED, PROPOSED, inspect
from codezero.problems.synthetic.tasks import held_out, is_held_out, make_task, parse_question
from codezero.types import Problem, Source, Standing, Style


class CodeEnvironment(Environment):
    """Problems of Python code."""

    name, digest = "code", ""

    def generate(self, origin: str) -> Problem:
        """Problem of the embedded family."""
        return make_task(Random(origin)).problem

    def prompt(self, problem: Problem) -> str:
        return solver_prompt(problem)

    def fault(self, problem: Problem) -> tuple[str, str] | None:
        """By rules that are bounded before anything is parsed; nothing is run."""
        return inspect(problem, PROPOSED if problem.source is Source.PROPOSER else CURATED)

    def withholds(self, problem: Problem) -> bool:
        """Does it ask for a held-out program of the embedded family?"""
        known = parse_question(problem.question)
        return known is not None and is_held_out(known[1])

    def held_out(self, count: int, seed: int) -> list[Problem]:
        return held_out(count, seed)


def solver_prompt(problem: Problem) -> str:
    """The question, then the form of the answer (which the embedded solver's template drops). Expected values of a test
    that a proposer only claims are not shown."""
    program = "with the whole program, which reads stdin and writes stdout,"
    wanted = program if problem.style is Style.STDIO else f"that defines {problem.entry_point}"
    tests = () if problem.standing is Standing.CLAIMED else problem.tests
    example = f"\nIt must pass: {tests[0]}" if tests else ""
    if problem.style is Style.STDIO:  # the first that is short
        shown = examples(tests, problem.entry_point)[:1]
        example = "".join(f"\nGiven this input:\n{test.input}\nit must write:\n{test.output}" for test in shown)
    return f"{problem.question}\n\nANSWER FORMAT: one ```python block {wanted} and nothing after it.{example}"
