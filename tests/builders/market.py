"""Games, reports and random plays of the market."""

from contextlib import closing
from pathlib import Path
from random import Random

import msgspec

from codezero.market.games import NONE, ONE, STEPS, VERDICTS, Evidence, Game, GameKind, Opening, StepReport
from codezero.market.jury import PROVEN, Ballot, as_bits, decide, places, settle
from codezero.market.ledger import FILE, NOTE, Fact, GameResult, Ledger, LedgerRow, PlayerNote, PriceRow
from codezero.market.payout import STAKE, Position, Sealed, positions, seal_root

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


ME = peer(0)


def small_ledger(folder: Path, *, games: int = 3, round: int = 100) -> list[Game]:
    """`market.sqlite` of node ME: `games` games each that seven peers played, settled, and one open. Oldest first."""
    folder.mkdir(parents=True, exist_ok=True)
    made = [played(round - 20 + 10 * (number % 2), f"question {number}") for number in range(games)]
    with closing(Ledger(folder / FILE)) as ledger:
        for game in made:
            ledger.put(Fact.GAME, game.round, game.opener, game.id, game)
        for start in {game.round for game in made}:
            _play(ledger, [game for game in made if game.round == start])
        open_game = msgspec.structs.replace(program_game(round=round - 2), question="is open <img src=x>\u202e")
        place = open_game.round, open_game.opener, open_game.id
        ledger.put(Fact.GAME, *place, open_game)
        ledger.put(Fact.SEAL, round - 1, ME, b"", (SALT, reports_on(open_game, (7000, 3000))))
        ledger.put(Fact.PRICE, *place, PriceRow([[0.5, 0.5], [0.7, 0.3]], [[0.5, 0.5], [0.6, 0.4]], 3))
        ledger.put(Fact.EVIDENCE, *place, Evidence(open_game.id, (True, None, False)))
        ledger.put(Fact.NOTE, 0, "", NOTE, PlayerNote(round, "", {"settled": games}))
    return [*made, open_game]


def played(round: int, question: str) -> Game:
    return msgspec.structs.replace(value_game(answers=("2", "1", NONE)), round=round, question=question)


def _play(ledger: Ledger, games: list[Game]) -> None:
    """Seals of seven peers, the last of whom hides one; ballots of five of them; settled by the real functions."""
    start, peers = games[0].round, [peer(number) for number in range(7)]
    roots: dict[tuple[str, int], bytes] = {}
    reveals: dict[tuple[str, int], Sealed] = {}
    openings = {game.id: opening_of(game)[game.id] for game in games}
    for number, name in enumerate(peers):
        for step in range(STEPS):
            q = (5000 + 600 * number, 3000 - 300 * number, 2000 - 300 * number)
            reports = tuple(
                report for game in games for report in reports_on(game, *[q] * STEPS) if report.step == step
            )
            place, root = (name, start + 1 + step), seal_root(name, SALT, reports)
            roots[place] = root
            ledger.put(Fact.ROOT, place[1], name, root, root)
            if name == ME:
                ledger.put(Fact.SEAL, place[1], name, b"", (SALT, reports))
            if (number, step) != (6, 2):
                reveals[place] = SALT, reports
                ledger.put(Fact.REVEAL, place[1], name, root, reveals[place])
    anchored = {n: {name: root for (name, at), root in roots.items() if at == n} for n in games[0].reporting}
    shown = as_bits(reveals, places(games[0], anchored))
    sheet = tuple(openings), (PROVEN,) * len(openings), shown
    for name in peers[1:6]:
        ledger.put(Fact.BALLOT, start, name, b"", sheet)
    for game in games:
        place = game.round, game.opener, game.id
        held = positions(game, dict.fromkeys(peers, STAKE), roots, reveals)
        ballots = [Ballot(game.id, name, PROVEN, shown) for name in peers[1:6]]
        ended = settle(game, held, decide(game, peers, ballots, places(game, anchored)), 0)
        assert not ended.void
        brier = {"own": 0.4, "equal": 0.3, "skilled": 0.2 + 0.01 * (len(game.question) % 3), "robust": 0.25}
        result = GameResult(answer=0, truth=0, wins=ended.wins, jury=peers, brier=brier, price=0.81, right=True)
        ledger.put(Fact.OPENING, *place, openings[game.id])
        ledger.put(Fact.PRICE, *place, PriceRow([[0.5, 0.3, 0.2]] * 4, [[0.5, 0.3, 0.2]] * 4, 6))
        ledger.put(Fact.VALUES, *place, [("2", 1.0)])
        ledger.put(Fact.CONFIRMED, *place, "2")
        ledger.settle(LedgerRow(*place, result), ended.wins, ended.scores)
