"""A notebook: sample attempts, judge them, execute them, train five iterations, see the curve. Offline, on a CPU.

    uv run --group docs marimo edit examples/notebook.py

Or `.venv/bin/marimo edit examples/notebook.py` after `scripts/install.sh dev`. It is plain Python: `python
examples/notebook.py` runs every cell.
"""

import marimo

app = marimo.App()


@app.cell
def _():
    import marimo as mo

    mo.md("""
    # A model learns to code

    The parts are those of a node, put together by hand: no swarm, no chain, no page.
    Each cell is one step of an iteration.
    """)
    return (mo,)


@app.cell
def _():
    from contextlib import ExitStack
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from codezero.environments.build import build_environment
    from codezero.evals.build import build_exam, build_exam_tasks
    from codezero.evaluator.build import build_canaries, build_evaluator
    from codezero.problems.filters import Novelty
    from codezero.sandbox.build import build_sandbox
    from codezero.settings import compose
    from codezero.solver.build import build_policy, build_solver

    config = compose(["evals.problems=40", "evaluator.canaries=200"])
    stack, withheld = ExitStack(), Novelty()
    environment = build_environment(config)
    asked = build_exam_tasks(config, environment, withheld, print)
    learner, sampler = build_policy(config, [], Path(stack.enter_context(TemporaryDirectory())), print, stack)
    canaries = build_canaries(config, withheld, stack, print, environment)
    evaluator = build_evaluator(config, canaries, stack, print, environment=environment)
    exam = build_exam(config, asked, sampler, evaluator, stack)
    solver = build_solver(config, environment, learner, sampler, "notebook")
    sandbox = build_sandbox(config, stack)
    return config, environment, evaluator, exam, sandbox, solver, stack


@app.cell
def _(config, environment, mo, solver):
    # Sample: eight attempts at each of a few problems.
    problems = [environment.generate(f"notebook {number}") for number in range(4)]
    groups = solver.rollout(problems, 0)
    mo.md(f"""
    ## Attempts

    {problems[0].question}

    {groups[0].completions[0].text}

    {config.solver.group_size} attempts at a problem are one group.
    """)
    return (groups,)


@app.cell
def _(evaluator, groups, mo, sandbox):
    # Judge: nothing is run. Execute: the same attempts, for us to look at; it teaches nothing.
    from codezero.code.answer import read_answer
    from codezero.sandbox.base import Job

    scored = evaluator.score(groups)
    rows = []
    for group in scored:
        problem = group.group.problem
        for completion, verdict in zip(group.group.completions, group.verdicts, strict=True):
            code = read_answer(completion.text, problem.entry_point, "best").code
            truth = sandbox.run_distinct([Job(code, problem.tests)]) if code else {}
            shown = next(iter(truth.values())).outcome.name.lower() if truth else "no code"
            rows.append({"judged": round(verdict.correctness, 2), "executed": shown, "code": code or ""})
    mo.ui.table(rows)
    return


@app.cell
def _(environment, evaluator, exam, solver):
    # Train: five iterations of sampling, judging and GRPO. The exam before and after is executed.
    def executed(iteration):
        exam.begin(iteration)
        return exam.results(wait=True)["eval/average_at_8"]

    start, rewards = executed(0), []
    for iteration in range(1, 6):
        batch = [environment.generate(f"iteration {iteration} problem {number}") for number in range(16)]
        judged = evaluator.score(solver.rollout(batch, iteration))
        solver.step(judged, [])
        rewards.append([verdict.reward for each in judged for verdict in each.verdicts])
    end = executed(5)
    return end, rewards, start


@app.cell
def _(end, mo, rewards, start):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3))
    axes = figure.add_subplot()
    axes.plot(range(1, 6), [sum(each) / len(each) for each in rewards], marker="o", label="mean reward, judged")
    axes.plot([0, 5], [start, end], marker="s", label="average@8, executed")
    axes.set_xlabel("iteration")
    axes.set_ylim(0, 1)
    axes.legend()
    mo.vstack([figure, mo.md(f"Executed average@8: {start:.1%} before, {end:.1%} after five iterations.")])
    return


@app.cell
def _(mo, rewards, stack):
    # The last cell ends the child processes of the judge and the sandbox; run the notebook again to go on.
    stack.close()
    mo.md(f"{len(rewards)} iterations. `codezero run` does the same, with peers, a level that adapts, and checkpoints.")
    return


if __name__ == "__main__":
    app.run()
