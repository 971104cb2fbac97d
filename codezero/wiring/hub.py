"""Config -> checkpoints that are pushed to the hub: the token, and the run's figures for the card."""

# pyright: reportUnknownMemberType=false

import contextlib
import os
from pathlib import Path

from codezero.config import HubConfig, NodeConfig
from codezero.errors import ConfigError, WalletError
from codezero.monitor.metrics_file import number
from codezero.monitor.run_state import Fold, History
from codezero.protocols import Checkpoints
from codezero.solver.hub_push import HubPusher, PushedCheckpoints
from codezero.system.files import read_private
from codezero.system.state import KnownRound

MAX_TOKEN = 1024
"""Bytes."""
_CARD = """---
{{ card_data }}
---

# {{ name }}

{{ what }} `{{ base }}`, after {{ iteration }} iterations of GRPO in a codezero swarm. \
Rewards came from the frozen judge `{{ judge }}`.

| figure | how | iteration | value | 95 % interval |
|---|---|---|---|---|
{% for figure in figures %}| {{ figure | join(" | ") }} |
{% endfor %}
*executed*: attempts were run against their tests in a sandbox. *judged*: what a model believes of them.
{% if not figures %}
Nothing has been measured yet.
{% endif %}
| setting | value |
|---|---|
{% for setting in settings %}| {{ setting | join(" | ") }} |
{% endfor %}"""


def pushed(
    config: NodeConfig,
    store: Checkpoints,
    run: Path,
    checkpoints: Path,
    known_round: KnownRound,
    stack: contextlib.ExitStack,
) -> Checkpoints:
    """`store`, and what it saves is pushed where the config says so. Raises ConfigError when there is no token."""
    if not config.hub.repository:
        return store
    history = History(run)
    pusher = HubPusher(
        config.hub, token_of(config.hub), run, lambda iteration: model_card(config, history.read(), iteration)
    )
    stack.callback(pusher.close)
    part = "adapter" if config.model.train == "lora" else "model"
    return PushedCheckpoints(store, pusher, lambda number: checkpoints / f"{number:08d}" / "solver" / part, known_round)


def token_of(settings: HubConfig) -> str:
    """From the file or the variable that the config names. Raises ConfigError."""
    if settings.token_file:
        try:
            token = read_private(Path(settings.token_file), MAX_TOKEN).decode("ascii").strip()
        except (WalletError, UnicodeDecodeError) as error:
            raise ConfigError(f"hub.token_file: {error}") from error
    else:
        token = os.environ.get(settings.token_variable, "").strip()
    if not token or not token.isprintable() or " " in token:
        file = settings.token_file
        where = f"hub.token_file={file}" if file else f"the variable {settings.token_variable}"
        raise ConfigError(f"hub.repository={settings.repository} needs a token that may write, and {where} has none")
    return token


def model_card(config: NodeConfig, fold: Fold, iteration: int) -> str:
    """Markdown with the hub's front matter: the run's own figures, each with how it was measured, and nothing else."""
    from huggingface_hub import ModelCard, ModelCardData

    adapter, base, solver = config.model.train == "lora", config.model.solver, config.solver
    data = ModelCardData(
        base_model=base if _is_hub_id(base) else None,
        library_name="peft" if adapter else "transformers",
        pipeline_tag="text-generation",
        tags=["codezero", "grpo"],
    )
    settings = {
        "group size": solver.group_size,
        "problems an iteration": solver.problems_per_iteration,
        "learning rate": solver.learning_rate,
        "loss": solver.loss,
        "reward": config.reward.mode,
        "problems": ", ".join(Path(source).name for source in config.data.sources),
        "seed": config.seed,
    }
    card = ModelCard.from_template(
        data,
        template_str=_CARD,
        name=config.hub.repository.rpartition("/")[2],
        what="A LoRA adapter for" if adapter else "All weights, learned from",
        base=_model_name(base),
        judge=_model_name(config.evaluator.model),
        iteration=iteration,
        figures=figures(fold, iteration, "executed" if config.reward.mode == "rlvr" else "judged"),
        settings=[(name, _cell(str(value))) for name, value in settings.items()],
    )
    return str(card)


def figures(fold: Fold, iteration: int, rewarded: str) -> list[tuple[str, ...]]:
    """(figure, how it was measured, iteration, value, interval) of the first and the newest exam up to `iteration`, and
    of the newest reward."""

    def row(name: str, label: str, at: int, value: float, low: float | None = None, high: float | None = None) -> None:
        interval = "" if low is None or high is None else f"{low:.3f} to {high:.3f}"
        rows.append((name, _cell(label), str(at), f"{value:.3f}", interval))

    rows: list[tuple[str, ...]] = []
    exams = {exam.iteration: exam for exam in reversed(fold.exams.items) if exam.iteration <= iteration}
    for exam in [exams[at] for at in sorted({min(exams), max(exams)})] if exams else []:
        row(f"average@{exam.samples}", exam.source, exam.iteration, exam.average, exam.low, exam.high)
        if exam.passed is not None:
            row(f"pass@{exam.samples}", exam.source, exam.iteration, exam.passed, exam.pass_low, exam.pass_high)
    for metrics in reversed(fold.recent):
        at, reward = number(metrics, "iteration"), number(metrics, "reward/mean")
        if reward is not None and 0 < (at or 0) <= iteration:
            row("mean reward", rewarded, int(at or 0), reward)
            break
    return rows


def _is_hub_id(name: str) -> bool:
    return name.count("/") == 1 and not name.startswith(("/", ".", "~"))


def _model_name(name: str) -> str:
    """A folder of this machine is named by its last part alone."""
    return _cell(name if _is_hub_id(name) else name.rstrip("/").rpartition("/")[2])


def _cell(text: str) -> str:
    """On one line, and within its cell of a table."""
    return " ".join(text.split()).replace("|", "/").replace("`", "'")[:200]
