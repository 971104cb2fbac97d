"""How small is a new version of the policy? Real GRPO steps on executed rewards, published, followed and compared.

The embedded solver learns with float32 masters; after each update (`solver.minibatches` steps) its weights are rounded
to bfloat16 and published as an exact delta, which a follower applies. Of each rate, over the versions behind the first
ten: the share of weights that changed, how many times smaller than the whole the delta is, its bits a changed weight,
and the same of the plain layout (a place of 32 bits and a value of 16). `exact`: the follower's bits, after every
version, are those of the policy.

Prints JSON.

    codezero bench deltas --json --versions 60 --rates 3e-6 1e-6
"""

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from codezero.config.learning import DataConfig
from codezero.environments.code import CodeEnvironment
from codezero.evaluator.build import EMBEDDED, build_evaluator
from codezero.problems.stream import MixedStream
from codezero.settings import compose
from codezero.solver.build import build_learner, build_sampler, build_solver, load_policy
from codezero.weights.delta import Weights, encode, weights_of
from codezero.weights.versions import HostCopy, Publisher, VersionSource

FIRST = 10  # versions not counted: Adam's first steps are as long as the rate for every weight, and so are dense
PLAIN_BITS = 48
Row = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one line instead of many")
    parser.add_argument("--versions", type=int, default=60)
    parser.add_argument("--rates", type=float, nargs="*", default=[3e-6, 1e-6])
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_args(argv)
    rates = {f"{rate:g}": summary(play(rate, options.versions, options.overrides)) for rate in options.rates}
    print(json.dumps(rates, indent=None if options.json else 1))
    return 0


def play(rate: float, versions: int, overrides: Sequence[str]) -> list[Row]:
    settings = [f"solver.learning_rate={rate}", "solver.scale_rewards=group", "solver.minibatches=2"]
    config = compose([*settings, "solver.problems_per_iteration=16", "reward.mode=rlvr", "solver.refill=1", *overrides])
    torch.manual_seed(0)
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        policy = load_policy(config, quiet)
        learner, sampler = build_learner(config, policy), build_sampler(config, policy, quiet, stack)
        solver = build_solver(config, CodeEnvironment(), learner, sampler, "QmNobody")
        evaluator = build_evaluator(config, EMBEDDED, stack, quiet)
        stream = MixedStream(CodeEnvironment(), DataConfig(), seed=1, peer_id="", batch=16)
        publisher = Publisher(folder)
        first = publisher.publish(0, dict(policy.model.named_parameters()))
        copy = HostCopy(VersionSource(folder), weights_of(dict(policy.model.named_parameters())).layout)
        follower = copy.reach(0, first.state)
        for version in range(1, versions + 1):
            solver.step(evaluator.score(solver.rollout(stream.next_batch([]), version)), [])
            before, newest = (
                Weights(follower.layout, follower.bits.copy()),
                weights_of(dict(policy.model.named_parameters())),
            )
            published = publisher.publish(version, dict(policy.model.named_parameters()))
            follower = copy.reach(version, published.state)
            rows.append(row(before, newest, published.delta) | {"exact": bool((follower.bits == newest.bits).all())})
            print(f"deltas: rate {rate:g}, version {version}: {json.dumps(rows[-1])}", file=sys.stderr, flush=True)
    return rows


def row(before: Weights, newest: Weights, size: int) -> Row:
    changed = int((before.bits != newest.bits).sum())
    before.state = before.content()
    start = time.process_time()
    encode(before, newest.bits)
    return {
        "changed": changed / len(newest.bits),
        "times_smaller": newest.bits.nbytes / size,
        "plain_times_smaller": newest.bits.nbytes * 8 / max(1, changed * PLAIN_BITS),
        "bits_a_weight": 8 * size / max(1, changed),
        "encode_ns_a_weight": (time.process_time() - start) / len(newest.bits) * 1e9,
    }


def summary(rows: Sequence[Row]) -> Row:
    later = rows[FIRST:] or rows
    figures = {name: float(np.round(median(row[name] for row in later), 4)) for name in later[0] if name != "exact"}
    return figures | {"versions": len(rows), "exact": all(row["exact"] for row in rows)}


def quiet(what: str) -> None:
    """Nobody is told what takes its time: every row is."""


if __name__ == "__main__":
    sys.exit(main())
