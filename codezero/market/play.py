"""A node's part in the market: `play` once an iteration. It opens games, reports, settles and posts by itself.

It uses what the node has anyway: its judge, and the sandbox where execution is allowed."""

import contextlib
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, islice
from pathlib import Path
from random import Random

import msgspec

from codezero.code.answer import read_answer
from codezero.code.assertions import as_problem
from codezero.config import MarketConfig
from codezero.errors import MarketError
from codezero.evaluator.base import Evaluator
from codezero.market import games
from codezero.market.games import Game, GameReport, Reports, Score
from codezero.market.ledger import GameResult, GameRow, Ledger, PlayerNote
from codezero.sandbox.base import TRUTH, Job, Sandbox
from codezero.swarm.base import Swarm
from codezero.system.state import Newest
from codezero.types import Completion, Metrics, Post, RolloutGroup, ScoredGroup, Standing, mean

logger = logging.getLogger(__name__)
SECONDS = 2.0  # of an iteration, half for reports and half for settling; what is left is for the next
OPENED, JUDGED_AT_ONCE, MOST_KNOWN = 4, 4, 1024  # games opened in a round, judged together, remembered
EXECUTED_STEP = 2  # from here on reports say what was executed, so that the first ones say what a judge is worth
EVIDENCE_AGES = (2, 3)  # rounds after the announcement in which the opener shows half of the tests' outcomes, and all
SURE, DOUBT = 0.98, 0.9  # what an own execution counts for, and evidence of an opener that has a vote
DECIDED = 0.8  # a judge that is less sure than this decides no game
PATIENCE = 30  # rounds after its end at which a game is given up
MEASURED = 200  # newest games by which own reports and prices are measured
UNDECIDED, NOT_PLAYED = "this node could not decide it", "it is not among the games that this node plays"


class Player:
    """Plays for one node, in one thread. sandbox: None where nothing is executed. logs: folder of `prg_record.txt`."""

    def __init__(
        self,
        settings: MarketConfig,
        name: str,
        swarm: Swarm,
        ledger: Ledger,
        judge: Evaluator,
        sandbox: Sandbox | None,
        *,
        block: str,
        seed: int,
        logs: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """name: of the swarm. block: which code block of an answer counts."""
        self._settings, self._name, self._swarm, self._me = settings, name, swarm, swarm.peer_id
        self._ledger, self._judge, self._sandbox = ledger, judge, sandbox
        self._block, self._random, self._logs, self._clock = block, Random(seed), logs, clock
        self._round, self._opens, self._posted = -1, False, (-1, b"")
        self._players, self._counts = set[str](), Counter[str]()
        self._beliefs = Newest[bytes, float | None](MOST_KNOWN)
        self._executions = Newest[bytes, bool | None](MOST_KNOWN)
        self._weigh()

    def play(self, round_number: int, judged: Sequence[ScoredGroup]) -> Metrics:
        """`market/...`. Raises MarketError, SwarmError, EvaluatorError and SandboxError."""
        start = self._clock()
        self._receive(self._swarm.posts(), round_number)
        if round_number != self._round:
            self._round = round_number
            self._ledger.forget(round_number)
            count = 1 + len(self._players)  # who together open about as many games as each plays
            self._opens = self._random.random() * count * OPENED < self._settings.games
        live = self._ledger.since(round_number - games.OVER - PATIENCE)
        if self._opens and not any((row.game.opener, row.game.round) == (self._me, round_number) for row in live):
            self._open(judged)
        others = groupby((row for row in live if row.game.opener != self._me), lambda row: row.game.round)
        chosen = [row for _, rows in others for row in islice(rows, self._settings.games)]
        reports = self._report(chosen, start + SECONDS / 2)
        self._settle(live, {row.game.id for row in chosen}, self._clock() + SECONDS / 2)
        self._show_evidence(live)
        self._post(reports)
        why = "" if self._players else "no other player was heard of yet"
        if not why and not self._ledger.newest(1, of=self._me):
            why = "the first reports are made in the round after the first games were announced"
        self._ledger.write_note(PlayerNote(round_number, why))
        return {
            **{f"market/{name}": count for name, count in sorted(self._counts.items())},
            **{f"market/brier_{name}": score for name, score in self._brier.items()},
            "market/voters": sum(each.vote for each in self._records.values()),
            "market/players": len(self._players),
            "market/balance": self._ledger.balance(self._me) / games.POINT,
            "market/seconds": self._clock() - start,
        }

    def _weigh(self) -> None:
        self._records = {peer: games.record(scores, self._me) for peer, scores in self._ledger.scores().items()}
        results = [row.result.brier for row in self._ledger.newest(MEASURED, settled=True) if row.result]
        self._brier = {name: mean(brier[name] for brier in results if name in brier) for name in ("own", "price")}

    def _receive(self, posts: Iterable[Post], now: int) -> None:
        """Keep what is well-formed and at most SLACK from the open round."""
        reports: list[tuple[Post, GameReport]] = []
        for post in posts:
            try:
                message = games.parse_post(post.payload, peer=post.peer, round=post.round, swarm=self._name)
            except MarketError as error:
                self._counts["refused"] += 1
                logger.info("a market post of %s is dropped: %s", post.peer, error)
                continue
            if abs(post.round - now) <= games.SLACK:
                self._players.add(post.peer)
                for game in message.games:
                    self._ledger.add(game)
                for evidence in message.evidence:
                    self._ledger.add_evidence(evidence.game, post.peer, evidence.outcomes)
                reports += ((post, report) for report in message.reports)
        for post, report in reports:
            self._ledger.add_report(report.game, post.peer, post.round, report.q)

    def _open(self, judged: Sequence[ScoredGroup]) -> None:
        """Announce games on own attempts at problems whose tests are known to be right."""
        groups = [each.group for each in judged if each.group.peer_id == self._me]
        self._random.shuffle(groups)
        opened = 0
        for group in groups:
            problem = group.problem
            answers = (read_answer(each.text, problem.entry_point, self._block).code for each in group.completions)
            codes = sorted({code for code in answers if code})
            is_known = problem.standing is Standing.REFERENCE and problem.entry_point
            if is_known and codes and opened < OPENED:
                place, code = (self._name, self._me, self._round), self._random.choice(codes)
                with contextlib.suppress(MarketError):
                    game = Game(*place, problem.question, code, problem.tests, problem.proposer)
                    games.check_game(game, peer=self._me, round=self._round, swarm=self._name)
                    opened += self._ledger.add(game)
        self._counts["opened"] += opened

    def _report(self, chosen: Sequence[GameRow], deadline: float) -> list[GameReport]:
        """Make this round's reports, while there is time; returns all of the round."""
        due = [(row, step) for row in chosen if (step := games.step_of(row.game, self._round)) is not None]
        self._believe([row.game for row, _ in due], deadline)
        current: list[GameReport] = []
        for row, step in due:
            reports = self._ledger.reports(row.game.id)
            q = reports[self._me][step] if self._me in reports else None
            if q is None and self._clock() < deadline:
                q = self._opinion(row, reports, step)
                if q is not None:
                    self._counts["reports"] += self._ledger.add_report(row.game.id, self._me, self._round, q)
            current += [] if q is None else [GameReport(row.game.id, q)]
        return current

    def _believe(self, attempts: Sequence[Game], deadline: float = math.inf) -> None:
        waiting = [game for game in attempts if game.id not in self._beliefs]
        while waiting and self._clock() < deadline:
            batch, waiting = waiting[:JUDGED_AT_ONCE], waiting[JUDGED_AT_ONCE:]
            groups: list[RolloutGroup] = []
            for game in batch:
                completion = Completion(f"```python\n{game.code}\n```", (), (), finished=True)
                problem = as_problem(game.question, game.tests, None)
                groups.append(RolloutGroup(problem, (completion,), game.opener, game.round, policy_step=0))
            for game, scored in zip(batch, self._judge.score(groups), strict=True):
                verdict = scored.verdicts[0]
                self._beliefs[game.id] = verdict.correctness if verdict.trainable else None

    def _opinion(self, row: GameRow, reports: dict[str, Reports], step: int) -> int | None:
        """Basis points that the attempt is right; None: nothing is known of it. Raises SandboxError."""
        executed = self._executed(row.game) if step >= EXECUTED_STEP else None
        if executed is not None:
            return round(games.ONE * (SURE if executed else 1 - SURE))
        belief = self._beliefs.get(row.game.id)
        if belief is None:
            return None
        own = games.odds(min(SURE, max(1 - SURE, belief)))
        passed = [outcome for outcome in row.evidence if outcome is not None]
        opener = self._records.get(row.game.opener)
        if passed and opener is not None and opener.vote:
            own += games.odds(DOUBT) * (1 if all(passed) else -2)
        before = games.price_row(row.game, games.without(self._me, reports), self._records, step)
        if before.voters:  # a price is made of others' opinions as this is of the own one
            own = (own + games.odds(before.steps[-1])) / 2
        return round(games.ONE * games.probability(own))

    def _executed(self, game: Game) -> bool | None:
        """Run the attempt twice: do both agree that it is right, or wrong? None: that cannot be told."""
        if self._sandbox is not None and game.id not in self._executions:
            job = Job(game.code, game.tests)
            first, second = (TRUTH[self._sandbox.run(job).outcome] for _ in range(2))
            self._executions[game.id] = first if first is second else None
        return self._executions.get(game.id)

    def _decide(self, game: Game) -> bool | None:
        """Is the attempt right, by own execution, or by the judge where nothing is executed? None: not decided."""
        if self._sandbox is not None:
            return self._executed(game)
        self._believe([game])
        belief = self._beliefs.get(game.id)
        return None if belief is None or 1 - DECIDED < belief < DECIDED else belief >= DECIDED

    def _settle(self, live: Sequence[GameRow], chosen: set[bytes], deadline: float) -> None:
        """End what is over, one game at least, and more while there is time. What cannot be decided is void: every
        stake goes back."""
        ended = 0
        for game in (row.game for row in live if row.result is None and row.game.round <= self._round - games.OVER):
            if ended and self._clock() >= deadline:
                break
            reports, scores = self._ledger.reports(game.id), dict[str, Score]()
            is_played = game.id in chosen or self._me in (game.opener, *reports)
            is_late = game.round == self._round - games.OVER - PATIENCE
            right = self._decide(game) if is_played and not is_late else None
            result = GameResult(void=UNDECIDED if is_played else NOT_PLAYED)
            if right is not None:
                inside = games.players(game, reports)
                prices = games.price_row(game, games.without(self._me, inside), self._records, games.STEPS)
                brier = games.brier_scores(self._me, inside, prices.steps[-1], right) if self._sandbox else {}
                result = GameResult(right=right, wins=games.pay(inside, right), price=prices, brier=brier)
                for peer, steps in inside.items():
                    gains = (games.gain(q, right) for q in (steps[0], games.standing(steps)))
                    scores[peer] = Score(game.opener, *gains)
            if self._ledger.settle(game, result, scores):
                ended += 1
                self._count(game, result, reports.get(self._me))
        if ended:
            self._weigh()

    def _count(self, game: Game, result: GameResult, own: Reports | None) -> None:
        """Count a game that ended, and write a line to `prg_record.txt` for an own bet; a full disk costs the line."""
        self._counts["void" if result.void else "settled"] += 1
        q = games.standing(own) if own else None
        if q is None:
            return
        win = result.wins.get(self._me, 0)
        self._counts["won_milli"] += win
        ended = result.void or f"{'right' if result.right else 'wrong'}, {win / games.POINT:+.3f} points"
        bet = f"right {q / 100:.0f} %, wrong {(games.ONE - q) / 100:.0f} %"
        when, name = time.strftime("%Y-%m-%d %H:%M:%S"), f"program {game.id.hex()[:12]}"
        with contextlib.suppress(OSError), (self._logs / "prg_record.txt").open("a", encoding="utf-8") as file:
            file.write(f"{when} round {game.round} {name}: {bet} -> {ended}\n")

    def _show_evidence(self, live: Sequence[GameRow]) -> None:
        for game, known, result in live:
            age, half = self._round - game.round, (len(game.tests) + 1) // 2
            count = len(game.tests) if age >= EVIDENCE_AGES[1] else half if age >= EVIDENCE_AGES[0] else 0
            if self._sandbox and game.opener == self._me and result is None and len(known) < count:
                jobs = [Job(game.code, (test,)) for test in game.tests[:count]]
                outcomes: games.Outcomes = tuple(TRUTH[each.outcome] for each in self._sandbox.run_many(jobs))
                self._ledger.add_evidence(game.id, self._me, outcomes)

    def _post(self, reports: Sequence[GameReport]) -> None:
        """Send what peers do not have yet."""
        own = [row for row in self._ledger.since(self._round - games.STEPS) if row.game.opener == self._me]
        message = games.MarketPost(
            games=tuple(row.game for row in own if row.game.round >= self._round - 1),
            reports=tuple(reports),
            evidence=tuple(games.Evidence(row.game.id, row.evidence) for row in own if row.evidence),
        )
        posted = self._round, msgspec.msgpack.encode(message)
        if posted != self._posted:
            self._swarm.post(posted[1], self._round)
            self._posted = posted
