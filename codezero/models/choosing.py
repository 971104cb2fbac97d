"""The next token of each row, and the table of all that were drawn."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import NamedTuple

import torch
from torch import Tensor

WIDE = 2**14
"""Words of a vocabulary from which on its probabilities are summed in blocks."""
BLOCK = 64
ROWS_AT_ONCE = 8
"""Whose probabilities stay in the cache of a CPU."""


class Drawn(NamedTuple):
    ids: list[int]
    """EOS included."""
    logprobs: list[float]
    """Of the ids, in nats."""
    version: int | None = None
    """The oldest version of the policy among those that drew its tokens; None: the one at hand."""


class Draws:
    """The table of all draws of one call, [draws, most new tokens]."""

    def __init__(self, count: int, room: int, device: torch.device) -> None:
        self.room = room
        self.ids = torch.full((count, room + 1), -1, device=device)  # in the last column nothing is ever kept
        self.logprobs = torch.zeros(self.ids.shape, device=device)
        self.taken = torch.zeros(count, dtype=torch.long, device=device)
        self.done = torch.zeros(count, dtype=torch.bool, device=device)

    def forget(self, rows: range) -> None:
        """They begin anew."""
        self.ids[rows.start : rows.stop] = -1
        self.taken[rows.start : rows.stop] = 0
        self.done[rows.start : rows.stop] = False

    def note(self, rows: Tensor, tokens: Tensor, logprobs: Tensor, stops: Tensor) -> Tensor:
        """A token for each of these rows, nothing for those that are done. Returns who is done now, as bools."""
        done, at = self.done[rows], self.taken[rows]
        self.ids[rows, at] = tokens.masked_fill(done, -1)
        self.logprobs[rows, at] = logprobs
        at = at + ~done
        done = done | torch.isin(tokens, stops) | (at == self.room)
        self.taken[rows], self.done[rows] = at, done
        return done

    def rows(self) -> list[Drawn]:
        both = zip(self.ids.tolist(), self.logprobs.tolist(), self.taken.tolist(), strict=True)
        return [Drawn(ids[:length], logprobs[:length]) for ids, logprobs, length in both]


def choose(logits: Tensor, temperature: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A token for each row, drawn from softmax(logits / temperature), and its log-probability; both [rows].

    Temperature 0 takes the likeliest, with its log-probability at 1. Others come by the inverse of the cumulative
    distribution, which needs one random number a row; noise on every logit takes six times as long. Tokens with less
    than about 1e-7 of the mass come with a chance rounded to a multiple of that.
    """
    share = torch.rand(len(logits), 1, generator=generator, device=logits.device) if temperature else None
    if logits.size(-1) < WIDE:
        return _chosen(logits, temperature, share)
    size = ROWS_AT_ONCE if logits.device.type == "cpu" else len(logits)
    pieces = [slice(start, start + size) for start in range(0, len(logits), size)]
    some = [_chosen_wide(logits[piece], temperature, None if share is None else share[piece]) for piece in pieces]
    tokens, logprobs = zip(*some, strict=True)
    return torch.cat(tokens), torch.cat(logprobs)


def _chosen(logits: Tensor, temperature: float, share: Tensor | None) -> tuple[Tensor, Tensor]:
    """share [rows, 1]: of the mass, where the token lies; None: the likeliest."""
    log_p = (logits.float() / (temperature or 1)).log_softmax(-1)
    likeliest = log_p.argmax(-1, keepdim=True)
    if share is None:
        return likeliest[:, 0], log_p.gather(-1, likeliest)[:, 0]
    mass = log_p.exp().cumsum(-1)
    tokens = _first_beyond(mass, share * mass[:, -1:], likeliest)
    return tokens[:, 0], log_p.gather(-1, tokens)[:, 0]


def _chosen_wide(logits: Tensor, temperature: float, share: Tensor | None) -> tuple[Tensor, Tensor]:
    """As `_chosen`, by the masses of blocks and then within one: each pass over a large vocabulary has its price."""
    width = logits.size(-1)
    mass = logits.new_full((len(logits), -(-width // BLOCK) * BLOCK), float("-inf"), dtype=torch.float32)
    mass[:, :width] = logits
    if temperature not in (0, 1):
        mass.div_(temperature)
    top = mass.amax(-1, keepdim=True)
    blocks = mass.sub_(top).exp_().view(len(mass), -1, BLOCK)
    masses = blocks.sum(-1)
    before = masses.cumsum(-1)
    if share is None:
        tokens = logits.argmax(-1, keepdim=True)
    else:
        point = share * before[:, -1:]
        block = _first_beyond(before, point, masses.argmax(-1, keepdim=True))
        inside = blocks[torch.arange(len(blocks), device=block.device), block[:, 0]]
        rest = (point - before.gather(-1, block) + masses.gather(-1, block)).clamp(min=0)
        tokens = block * BLOCK + _first_beyond(inside.cumsum(-1), rest, inside.argmax(-1, keepdim=True))
    log_p = logits.gather(-1, tokens).float() / (temperature or 1) - top - before[:, -1:].log()
    return tokens[:, 0], log_p[:, 0]


def _first_beyond(mass: Tensor, point: Tensor, otherwise: Tensor) -> Tensor:
    """[rows, 1] the first place whose cumulative mass lies beyond the point, so never one without any; `otherwise`
    where rounding has put the point past the last."""
    place = torch.searchsorted(mass, point, right=True)
    return torch.where(place < mass.size(-1), place, otherwise)
