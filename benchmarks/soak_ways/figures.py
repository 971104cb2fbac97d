"""What `soak.py` makes of what it saw: memory, points, stuck minutes. Pure; times are seconds since the node began."""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FLAT = 1.05
"""Memory may be so many times what it was, at the same age of the process."""
WARM_SECONDS = 60.0
"""A process younger than this is still loading."""
BUCKET_SECONDS = 30.0
REWARD_SCALE = 1000
"""Of the contract's integers: see codezero/chain/outbox.py."""
MINUTE = 60.0
AGE_ERROR = 20.0
"""Seconds by which the age of the last step may be wrong and still tell of a standstill."""


@dataclass(frozen=True)
class Sample:
    """One look at the node, `at` seconds after the soak began."""

    at: float
    fault: str
    """In force; empty: none."""
    code: int
    """Exit code of `codezero status`."""
    said: str
    """What it says is wrong, points that are kept back included; empty: nothing."""
    running: bool
    age: float | None
    """Seconds since the last step, as it says."""
    iteration: int | None
    accepted: int | None
    """Submissions."""
    mib: float
    """PSS of the supervisor and all below it, without mapped files and without the chain."""
    pss_mib: float
    """With mapped files."""
    chain_mib: float
    """As `mib`."""
    life: int
    """Process id of the node; 0: none."""
    life_seconds: float
    load: float = 0.0
    """Of the machine, over the last minute."""


def memory(samples: Sequence[Sample]) -> dict[str, Any]:
    """The last five minutes beside minutes 5 to 10, at equal age of the process.

    The node is killed by some of the faults, so its size is compared with that of an earlier life at the same age, in
    steps of BUCKET_SECONDS. Where too few ages are common both windows are widened.
    """
    grown = [one for one in samples if one.life and one.life_seconds >= WARM_SECONDS]
    end = max((one.at for one in samples), default=0.0)
    told: dict[str, Any] = {}
    for minutes in range(5, 21):
        early = _by_age([one for one in grown if 5 * MINUTE <= one.at < (5 + minutes) * MINUTE])
        late = _by_age([one for one in grown if one.at >= end - minutes * MINUTE])
        common = sorted(early.keys() & late.keys())
        told = {"window_minutes": minutes, "ages_compared": len(common)}
        if len(common) >= 3 or (5 + 2 * minutes) * MINUTE > end:
            break
    ratios = [late[age] / early[age] for age in common]
    ratio = statistics.median(ratios) if ratios else None
    return told | {
        "mib_early": _median([early[age] for age in common]),
        "mib_late": _median([late[age] for age in common]),
        "ratio_at_equal_age": None if ratio is None else round(ratio, 3),
        "mib_per_minute_within_lives": _slope(grown),
        "chain_mib_first_last": [round(one.chain_mib, 1) for one in _ends([one for one in samples if one.chain_mib])],
        "longest_life_minutes": round(max((one.life_seconds for one in samples), default=0.0) / MINUTE, 1),
        "memory_flat": ratio is not None and ratio <= FLAT,
    }


def _by_age(samples: Sequence[Sample]) -> dict[int, float]:
    """Median MiB by age."""
    found: dict[int, list[float]] = {}
    for one in samples:
        found.setdefault(int(one.life_seconds // BUCKET_SECONDS), []).append(one.mib)
    return {age: statistics.median(sizes) for age, sizes in found.items()}


def _slope(samples: Sequence[Sample]) -> float | None:
    """Least squares over all lives, each about its own mean."""
    xs: list[float] = []
    ys: list[float] = []
    for life in {one.life for one in samples}:
        own = [one for one in samples if one.life == life]
        age, size = statistics.fmean(one.life_seconds for one in own), statistics.fmean(one.mib for one in own)
        xs += [(one.life_seconds - age) / MINUTE for one in own]
        ys += [one.mib - size for one in own]
    spread = sum(x * x for x in xs)
    return round(sum(x * y for x, y in zip(xs, ys, strict=True)) / spread, 2) if spread else None


def _median(values: Sequence[float]) -> float | None:
    return round(statistics.median(values), 1) if values else None


def _ends(samples: Sequence[Sample]) -> list[Sample]:
    return [samples[0], samples[-1]] if samples else []


def points(
    rewards: Sequence[float], added: Sequence[tuple[int, float]], chain: Mapping[int, int | None]
) -> dict[str, Any]:
    """Was every iteration's reward counted, and did every round's points reach the chain with their value?

    rewards: of the run's own rows, in their order. added: round and reward of all that the outbox has counted, in its
    order; what it has and the rows have not was counted for an iteration that a death made the node do again. chain:
    what the contract holds for each round.
    """
    at, missing = 0, 0
    for reward in rewards:
        found = next((i for i in range(at, len(added)) if abs(added[i][1] - reward) < 1e-9), None)
        missing += found is None
        at = at if found is None else found + 1
    astray: dict[int, int] = {}
    for number, group in itertools.groupby(sorted(added), key=lambda one: one[0]):
        own = [reward for _, reward in group]
        value = chain.get(number)
        if value is None or abs(value - REWARD_SCALE * statistics.fmean(own)) > 0.5 + 1e-6:
            astray[number] = len(own)
    return {
        "iterations_with_a_reward": len(rewards),
        "counted_in_the_outbox": len(added),
        "counted_for_iterations_done_again": len(added) - len(rewards) + missing,
        "rounds_on_the_chain": sum(value is not None for value in chain.values()),
        "not_counted": missing,
        "not_on_the_chain": sum(astray.values()),
        "rounds_astray": sorted(astray),
        "points_lost": missing + sum(astray.values()),
    }


def stuck(steps: Sequence[float], samples: Sequence[Sample], end: float) -> dict[str, Any]:
    """Minutes without a new iteration, and those of them that `status` did not show. steps: when each came.

    It shows one by naming a problem, by saying that the node is not running, or by the true age of the last step.
    """
    minutes: list[dict[str, Any]] = []
    for since, until in itertools.pairwise([*steps, end]):
        for minute in range(int((until - since) // MINUTE)):
            begin = since + minute * MINUTE
            looks = [one for one in samples if begin <= one.at < begin + MINUTE]
            named = [one.said or "not running" for one in looks if one.said or not one.running]
            aged = any(one.age is not None and _tells(one.age, one.at - since) for one in looks)
            shown = "problem" if named else "age of the last step" if aged else ""
            minutes.append({"minute": round(begin / MINUTE, 1), "shown_by": shown, "said": named[:1]})
    return {
        "stuck_minutes": len(minutes),
        "stuck_unseen": sum(not one["shown_by"] for one in minutes),
        "stuck": minutes,
        "longest_gap_seconds": round(max((b - a for a, b in itertools.pairwise([*steps, end])), default=0.0), 1),
    }


def _tells(age: float, truth: float) -> bool:
    """Long enough to look like a standstill, and true."""
    return age >= AGE_ERROR and abs(age - truth) < AGE_ERROR


def by_fault(done: Sequence[Mapping[str, Any]], samples: Sequence[Sample]) -> dict[str, Any]:
    """For each kind how often it was, how, and what `status` said while it lasted."""
    told: dict[str, Any] = {}
    for kind in sorted({one["kind"] for one in done}):
        own = [one for one in done if one["kind"] == kind]
        looks = [one for one in samples if one.fault == kind]
        said = [one.said or ("" if one.running else "not running") for one in looks]
        told[kind] = {
            "times": len(own),
            "how": sorted({one["how"] for one in own}),
            "looks": len(looks),
            "looks_that_said_something": sum(map(bool, said)),
            "said": sorted({_shape(one) for one in said if one})[:8],
        }
    return told


def _shape(text: str) -> str:
    """Without figures, so that the same complaint is one line."""
    return "".join("#" if letter.isdigit() else letter for letter in text).replace("##", "#").replace("##", "#")[:160]
