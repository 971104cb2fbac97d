"""A probe: the direction in a judge's hidden states along which right and wrong attempts at one problem differ.

What a judge says of a program is less than what it has read in it: a frozen model's states order attempts better than
its answers do. The direction is fitted before a run on executed attempts at other problems, and frozen in it."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta
from scipy.optimize import minimize
from scipy.special import expit
from torch import nn

from codezero.errors import ConfigError, translated
from codezero.models.load import LoadedModel
from codezero.stats import Array, GroupOrder, WithinGroups, group_order, within_groups
from codezero.system.files import read_json, write_atomic

SHIPPED = Path(__file__).with_name("probes")
MOST_BYTES = 1 << 20
FOLDS = 8
RIDGE, LIKELIHOOD_RIDGE = 3.0, 0.03  # L2 penalty on standardised differences: of a state's numbers, of the likelihood
NORM = 32  # weights of a norm that are compared
LEAST_GROUPS = 40  # with an attempt that passed and one that did not: of fewer nothing is fitted that holds elsewhere

_Finite = Annotated[float, Meta(ge=-1e6, le=1e6)]
_Count = Annotated[int, Meta(ge=1, le=1 << 20)]
_Name = Annotated[str, Meta(max_length=255)]


class Probe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a probe's file."""

    judge: Annotated[str, Meta(max_length=200)]  # whose states it reads, for people
    layers: _Count  # of the judge
    layer: _Count  # whose output is read, counted from 1
    norm: Annotated[list[_Finite], Meta(min_length=1, max_length=1024)]  # first weights of its last norm: known by them
    direction: Annotated[list[_Finite], Meta(min_length=2, max_length=1 << 16)]  # [D + 1] of `features`
    fitted_on: Annotated[str, Meta(max_length=1000)]
    within: Annotated[list[_Finite], Meta(min_length=3, max_length=3)]  # AUROC with interval, on other problems
    groups: _Count
    pairs: _Count  # of a right and a wrong attempt, of the same problem, that it was fitted on
    sets: Annotated[list[_Name], Meta(max_length=32)] = []  # of problems, that it was fitted on
    state: Literal["last", "mean"] = "last"  # of the program's tokens: which it weighs
    # AUROC with interval on a set of problems when it was fitted on others, by the set's name
    elsewhere: Annotated[
        dict[_Name, Annotated[list[_Finite], Meta(min_length=3, max_length=3)]], Meta(max_length=32)
    ] = {}

    def is_of(self, loaded: LoadedModel) -> bool:
        own, width = last_norm(loaded), loaded.model.config.get_text_config().hidden_size
        alike = (depth_of(loaded), width + 1, len(own)) == (self.layers, len(self.direction), len(self.norm))
        return alike and np.allclose(own, self.norm, rtol=0.02, atol=1e-3)

    def score(self, features: Array) -> float:
        """Score a program's features; higher is likelier right."""
        return float(np.dot(self.direction, features))

    def doubt(self, sources: Iterable[str]) -> str:
        """Say why it may know little of the problems of these sources; empty where it was fitted on some of them."""
        names = [*map(set_name, sources)]
        if not self.sets or {*names} & {*self.sets}:
            return ""
        known = [f"{area:.2f} [{low:.2f}, {high:.2f}] on {name}" for name, (area, low, high) in self.elsewhere.items()]
        there = f"its AUROC within groups was {', '.join(known)}" if known else "it was not measured"
        kinds = f"the probe was fitted on {', '.join(self.sets)}, and {', '.join(names)} may be of another kind"
        return f"{kinds}; with a set left out of the fit {there}"

    def write(self, path: Path) -> None:
        """Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, msgspec.json.format(msgspec.json.encode(self), indent=1))


def set_name(source: str) -> str:
    """A set of problems by the name that a probe knows it by, of a source or of a file of rows."""
    return re.split(r"[@.]", Path(source).name)[0]


class Attempted(NamedTuple):
    """Attempts at one problem, and what the judge has read in them."""

    features: Array  # [G, L, D + 1] after each layer that was read, in the form of `Probe.direction`
    passed: Sequence[bool]

    def order(self, layer: int, direction: Array) -> GroupOrder:
        return group_order(list(zip((self.features[:, layer] @ direction).tolist(), self.passed, strict=True)))


def depth_of(loaded: LoadedModel) -> int:
    return int(loaded.model.config.get_text_config().num_hidden_layers)


def last_norm(loaded: LoadedModel) -> list[float]:
    """The first weights of the last norm of a model's decoder."""
    decoder: nn.Module = loaded.model.get_decoder()
    vectors = [weights for weights in decoder.parameters() if weights.dim() == 1]
    return vectors[-1][:NORM].float().tolist()


def read_probe(path: Path) -> Probe:
    """Raises ConfigError."""
    with translated(ConfigError, f"evaluator.probe={path} cannot be used", OSError, ValueError):
        probe = read_json(path, Probe, MOST_BYTES)
        if probe.layer > probe.layers:
            raise ValueError(f"layer {probe.layer} of {probe.layers}")
        if probe.state != "mean":
            raise ValueError("it weighs the last token's state, which is not read any more; fit it anew")
        return probe


def fit(groups: Sequence[Attempted], layer: int) -> Array:
    """The direction w that maximises the likelihood that right attempts come before wrong ones of their group. The
    chance of a pair is sigmoid(w (x_right - x_wrong)) (Bradley & Terry, "Rank analysis of incomplete block designs",
    1952), so that what tells problems apart cancels. Groups count by the root of their pairs. `layer`: its place among
    those that were read."""
    rows, weights = list[Array](), list[Array]()
    for group in groups:
        features, right = group.features[:, layer], np.asarray(group.passed, dtype=bool)
        pairs = (features[right][:, None] - features[~right][None]).reshape(-1, features.shape[1])
        rows.append(pairs)
        weights.append(np.full(len(pairs), 1 / np.sqrt(max(1, len(pairs)))))
    differences, weight = np.concatenate(rows), np.concatenate(weights)
    weight /= weight.sum()
    scale = np.sqrt(weight @ differences**2) + 1e-9
    differences /= scale
    ridge = np.append(np.full(len(scale) - 1, RIDGE), LIKELIHOOD_RIDGE)

    def loss(direction: Array) -> tuple[float, Array]:
        """With its gradient."""
        margin = differences @ direction
        value = weight @ np.logaddexp(0, -margin) + 0.5 * ridge @ direction**2
        return float(value), ridge * direction - differences.T @ (weight * expit(-margin))

    optimum: Array = minimize(loss, np.zeros(len(scale)), jac=True, method="L-BFGS-B", options={"maxiter": 500}).x
    return optimum / scale


def left_out(sets: Mapping[str, Sequence[Attempted]], layer: int) -> dict[str, WithinGroups]:
    """Order the attempts of each set, by its name, by a direction that was fitted on all others."""
    orders = dict[str, WithinGroups]()
    for name, groups in sets.items():
        direction = fit([group for other in sets if other != name for group in sets[other]], layer)
        if order := within_groups(group.order(layer, direction) for group in groups):
            orders[name] = order
    return orders


def unseen(groups: Sequence[Attempted], layer: int) -> WithinGroups | None:
    """Order the attempts of groups by directions that were not fitted on them: FOLDS folds of whole groups."""
    orders = list[GroupOrder]()
    for fold in range(FOLDS):
        direction = fit([group for at, group in enumerate(groups) if at % FOLDS != fold], layer)
        orders += [group.order(layer, direction) for group in groups[fold::FOLDS]]
    return within_groups(orders)
