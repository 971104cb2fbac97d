"""`codezero judge train`: a probe for a judge, fitted on executed attempts of a policy."""

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import groupby

import numpy as np

from codezero.code.worker import StaticGuard
from codezero.config import NodeConfig
from codezero.errors import ConfigError
from codezero.evaluator.judge import LikelihoodJudge
from codezero.evaluator.judge_prompts import LIKELIHOOD
from codezero.evaluator.probe import LEAST_GROUPS, Attempted, Probe, depth_of, fit, last_norm, unseen
from codezero.evaluator.types import Program
from codezero.models.load import LoadedModel
from codezero.stats import WithinGroups
from codezero.system.signals import Share
from codezero.wiring.attempts import Attempts, Wanted, attempts_of, readable
from codezero.wiring.models import Say, load

LAYERS = (0.6, 0.7, 0.75, 0.8)
"""Of a judge's depth: where probes are tried. Earlier and later ones order worse (measured)."""


def train_probe(config: NodeConfig, wanted: Wanted, stack: ExitStack, say: Say) -> Probe:
    """At the layer that orders best, in folds, the attempts of groups that were not fitted on.

    Raises ConfigError for a judge that is not local and for too few groups, and as `attempts_of`.
    """
    settings = config.evaluator
    if settings.kind != "local":
        raise ConfigError(f"evaluator.kind={settings.kind} shows no states to fit a probe on; set evaluator.kind=local")
    attempts = attempts_of(config, wanted, stack, say)
    guard = stack.enter_context(StaticGuard())
    judge = load(config, settings.model, "judge", say)
    depth = depth_of(judge)
    layers = sorted({max(1, round(share * depth)) for share in LAYERS})
    groups = read_groups(attempts, guard, judge, layers, settings.batch_rows, say)
    if len(groups) < LEAST_GROUPS:
        few = f"only {len(groups)} problems have an attempt that passes and one that fails; {LEAST_GROUPS} are needed"
        raise ConfigError(f"{few}: give more problems, or more --samples")
    orders = list[WithinGroups]()
    for place, layer in enumerate(layers):
        say(f"fitting at layer {layer} of {depth}")
        order = unseen(groups, place)
        assert order is not None
        orders.append(order)
    best = max(range(len(layers)), key=lambda place: orders[place].area)
    order = orders[best]
    direction = fit(groups, best)
    what = wanted.problems + (f", rows {wanted.rows}" if wanted.rows else "")
    return Probe(
        judge=settings.model,
        layers=depth,
        layer=layers[best],
        norm=last_norm(judge),
        direction=[float(f"{weight:.5g}") for weight in direction],
        fitted_on=f"attempts of {config.model.solver} at {what}",
        within=[round(end, 4) for end in order[:3]],
        groups=order.groups,
        pairs=order.pairs,
    )


def read_groups(
    attempts: Sequence[Attempts],
    guard: StaticGuard,
    judge: LoadedModel,
    layers: Sequence[int],
    batch_rows: int,
    say: Say,
) -> list[Attempted]:
    """Those with an attempt that passed and one that did not. A program that was written twice counts twice."""
    reader = LikelihoodJudge(judge, questions=[LIKELIHOOD], batch_rows=batch_rows)
    items = [list(group) for _, group in groupby(readable(guard, attempts), lambda item: item[0])]
    mixed = [group for group in items if len({passed for _, _, passed in group}) == 2]
    groups = list[Attempted]()
    for number, group in enumerate(mixed):
        say(Share("reading", number, len(mixed), " problems"))
        programs: list[Program] = list(dict.fromkeys(read for _, read, _ in group))
        known = dict(zip(programs, reader.features(programs, layers), strict=True))
        seen = [(features, passed) for _, read, passed in group if (features := known[read]) is not None]
        if len({passed for _, passed in seen}) == 2:
            groups.append(Attempted(np.array([features for features, _ in seen]), [passed for _, passed in seen]))
    return groups
