"""G4 and G6: do sampler and learner agree, and what happens when memory runs out?

Gaps are of one token, learner less sampler, in nats: their mean and largest size, and an estimate of the divergence of
the sampler from the learner, the mean of exp(gap) - 1 - gap (Schulman 2020), which cannot be negative."""

import subprocess
import sys
from pathlib import Path

import torch

from card_parts.workload import Bench, Report, batch, free, peak, prompts, sharpened
from codezero.config import SolverConfig
from codezero.models.device import keep_to_share
from codezero.models.generation import Drawn, OwnLoop
from codezero.solver.learner import TrlLearner

NEEDS_CARD = {"skipped": "only a card's allocator can be held to a bound"}
LOSS_TOLERANCE = 2e-3
"""Between the same update in other micro-batches: bfloat16 adds in another order."""


def mismatch(bench: Bench, name: str) -> Report:
    """The node's sampler and learner over the same weights, on own rows and on those of another policy."""
    new, shape = bench.tokens(256), bench.shape(name)
    given = prompts(shape, 4 if bench.tiny else 8, bench.tokens(256))
    stranger = sharpened(bench.load(name, seed=1))
    foreign = OwnLoop(stranger).draw(given, 8, new, 1.0, 0)
    del stranger
    free()
    policy = sharpened(bench.load(name))
    frozen = OwnLoop(policy).draw(given, 8, new, 1.0, 0)  # before the learner takes the weights to float32
    learner = TrlLearner(policy, SolverConfig(max_new_tokens=new, micro_batch_rows=8))
    cases = {
        "learner's weights": OwnLoop(policy).draw(given, 8, new, 1.0, 0),
        "weights in half precision": frozen,
    }
    report: Report = {what: gaps(learner, given, drawn) for what, drawn in cases.items()}
    again = learner.logprobs([given[0]], [foreign[0].ids])
    alone = learner.logprobs([given[0]] * 8, [draw.ids for draw in foreign[:8]])
    report["foreign rows, alone and in a batch"] = figures(torch.tensor(again[0]) - torch.tensor(alone[0]))
    return report


def gaps(learner: TrlLearner, given: list[list[int]], drawn: list[Drawn]) -> Report:
    rows = [given[at * len(given) // len(drawn)] for at in range(len(drawn))]
    scored = learner.logprobs(rows, [draw.ids for draw in drawn])
    own = torch.tensor([value for draw in drawn for value in draw.logprobs])
    return figures(torch.tensor([value for line in scored for value in line]) - own)


def figures(gap: torch.Tensor) -> Report:
    gap = gap.double()
    return {
        "tokens": len(gap),
        "mean": float(gap.abs().mean()),
        "max": float(gap.abs().max()),
        "kl": float((gap.exp() - 1 - gap).mean()),
    }


def halving(bench: Bench, name: str) -> Report:
    """The same update with all the memory there is, and with too little for its micro-batch."""
    if not bench.on_card:
        return NEEDS_CARD
    rows, config = 32, {"max_new_tokens": 384, "learning_rate": 1e-6, "minibatches": 1}
    given = batch(bench.shape(name), rows, 1024, 384)

    def update(at_once: int) -> tuple[float, float, int]:
        free()
        learner = TrlLearner(bench.load(name), SolverConfig(micro_batch_rows=at_once, **config))
        learner.update(given)  # moments are allocated
        free()
        done = learner.update(given)
        return float(done.loss or 0.0), float(done.grad_norm or 0.0), learner.tokens_per_pass

    loss, norm, _ = update(1)
    needed = peak() or 0
    torch.cuda.set_per_process_memory_fraction(1.4 * needed / torch.cuda.mem_get_info()[1])
    try:
        halved_loss, halved_norm, tokens = update(rows)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    return {
        "bound_gib": round(1.4 * needed / 2**30, 2),
        "tokens_per_pass": tokens,
        "loss": [loss, halved_loss],
        "grad_norm": [norm, halved_norm],
        "same": abs(loss - halved_loss) <= LOSS_TOLERANCE and abs(norm / halved_norm - 1) <= 0.02,
    }


def sharing(bench: Bench, name: str) -> Report:
    """Two processes at once, each with `memory_share=0.5`, each trying to take more."""
    if not bench.on_card:
        return NEEDS_CARD
    free()
    home = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})"
    code = f"{home}; from card_parts.exactness import one_of_two; one_of_two({name!r}, {str(bench.folder)!r})"
    both = [subprocess.Popen([sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    ended = [(process.communicate()[0].strip().splitlines(), process.returncode) for process in both]
    return {"processes": [{"exit_code": status, "last_line": lines[-1:]} for lines, status in ended]}


def one_of_two(name: str, folder: str) -> None:
    """An update in half of the card, then a tensor that only fits all of it, which has to be refused here."""
    bench = Bench(tiny=False, folder=Path(folder))
    keep_to_share(bench.device, 0.5)
    learner = TrlLearner(bench.load(name), SolverConfig(micro_batch_rows=4, minibatches=1, max_new_tokens=384))
    learner.update(batch(bench.shape(name), 8, 1024, 384))
    total = torch.cuda.mem_get_info()[1]
    try:
        torch.empty(int(0.6 * total), dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        print(f"kept to its share: {100 * torch.cuda.max_memory_allocated() / total:.1f} % of the card at most")
    else:
        print("took more than its share")
