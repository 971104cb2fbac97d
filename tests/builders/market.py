"""Games, reports and random plays of the market."""

from random import Random

from codezero.market.games import NONE, ONE, STEPS, VERDICTS, Game, GameKind, Opening, StepReport
from codezero.market.payout import Position

SALT = b"s" * 32
REFERENCE = "def f(n):\n    return n + 1"


def peer(number: int) -> str:
    return "Qm" + "abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ"[number % 48] * 44


def program_game(opener: str = peer(40), round: int = 10) -> Game:
    return Game(GameKind.PROGRAM, "swarm", opener, round, "f(n) adds one", REFERENCE, ("assert f(1) == 2",), VERDICTS)


def value_game(opener: str = peer(40), reference: str = REFERENCE, answers: tuple[str, ...] = ("1", "2", NONE)) -> Game:
    """reference: empty where nobody knows a solution."""
    commitment = Opening(SALT, SALT, reference).commitment
    return Game(GameKind.VALUE, "swarm", opener, 10, "f(n) adds one", "", ("f(1)",), answers, peer(41), commitment)


def opening_of(game: Game, reference: str = REFERENCE) -> dict[bytes, Opening]:
    return {game.id: Opening(game.id, SALT, reference)}


def probabilities(random: Random, answers: int, sharpness: float = 1.0) -> tuple[int, ...]:
    cut = [random.random() ** sharpness + 1e-9 for _ in range(answers)]
    whole = [int(ONE * part / sum(cut)) for part in cut]
    whole[random.randrange(answers)] += ONE - sum(whole)
    return tuple(whole)


def random_positions(random: Random, answers: int, peers: int, *, stake: int = 10_000) -> list[Position]:
    """Some come late, some report once; stakes from 1 to `stake` milli-points."""
    found: list[Position] = []
    for number in range(peers):
        first = 0 if random.random() < 0.7 else random.randrange(STEPS)
        steps = [step == first or (step > first and random.random() < 0.6) for step in range(STEPS)]
        reports = [probabilities(random, answers, random.choice([1, 4, 30])) if yes else None for yes in steps]
        found.append(Position(peer(number), random.randint(1, stake), tuple(reports)))
    return found


def reports_on(game: Game, *qs: tuple[int, ...] | None) -> tuple[StepReport, ...]:
    """One for each step from the first on; None: none."""
    return tuple(StepReport(game.id, step, q) for step, q in enumerate(qs) if q is not None)
