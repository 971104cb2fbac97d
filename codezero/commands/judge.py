"""`judge FILE`: verdicts on attempts; `judge serve`: the judge for other programs; `judge verify`: did it read them?"""

import argparse
import json
import os
import signal
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from codezero.commands.common import DONE, FAILED, INTERRUPTED, Commands, answer, composed, flag, say, value
from codezero.errors import ConfigError, translated

TOKEN = "CODEZERO_JUDGE_TOKEN"  # environment variable with what callers from other machines have to bear
SERVE = f"""Routes: /request-question, /submit-answer and /current_clue for rl-swarm's JudgeClient; /v1/verdicts for
batches, with a signed receipt; /v1/card says who the judge is and how far it can be believed; /openapi.json has all.
Nothing that is sent is executed.
  codezero judge serve
  curl -s localhost:8090/v1/verdicts -H 'Content-Type: application/json' -d @items.json > receipt.json
  codezero judge verify items.json receipt.json
Other machines need {TOKEN}: export it here, and send it as `Authorization: Bearer`.
"""
VERIFY = """Checks the signature, then reads some programs again with evaluator.model, as the signer should have. It
proves that these weights read the program so, not that the program is right. Exit code 1: it does not hold.
"""

TRAIN = """A probe is a direction in the hidden states of evaluator.model along which right and wrong attempts of
model.solver at one problem differ. Attempts are sampled, EXECUTED in the sandbox of audit.sandbox, and kept in
--attempts, from where the same command goes on. What is printed is the AUROC within groups, in folds: on problems that
the direction was not fitted on.
  codezero judge train --problems mbpp.jsonl --rows 601-974 --attempts attempts.jsonl --out probe.json \\
      model.solver=Qwen/Qwen2.5-Coder-0.5B-Instruct evaluator.model=Qwen/Qwen2.5-Coder-1.5B-Instruct
  codezero run evaluator.probe=probe.json ...
"""

ATTEMPTS = """  codezero judge FILE --audit          the same as `judge attempts FILE --audit`
  codezero judge attempts --help       what FILE holds
"""


def add(commands: Commands) -> None:
    about = "judge attempts that are already written; the judge as a service"
    group = commands.group("judge", about, ATTEMPTS, alone="attempts")
    file = value(Path, "FILE", "JSON lines: question, tests, completions[, entry_point, level]; - is stdin")
    audit = flag("also EXECUTE every attempt in a sandbox, beside the verdict, and say where they differ")
    skip = flag("leave out lines that cannot be used, and count them")
    arguments = {"file": file, "--audit": audit, "--skip-bad": skip}
    lines = "print a JSON line of verdicts for each line"
    group.add("attempts", attempts, "judge the attempts in FILE, with reasons", arguments, json=lines)
    commands.add("evaluate", attempts, "the old name of `judge FILE`", arguments, json=lines)
    takes = {
        "--host": value(str, "HOST", "where to listen (default 127.0.0.1)", default="127.0.0.1"),
        "--port": value(int, "PORT", "0 takes any (default 8090)", default=8090),
        "--open": flag(f"let whoever reaches the port use the routes of JudgeClient without {TOKEN}"),
        "--no-receipts": flag("sign none, which spares the judge's float64 copy"),
    }
    group.add("serve", serve, "serve verdicts over HTTP", takes, json="print where it is as JSON", epilog=SERVE)
    takes = {
        "--problems": value(str, "FILE", "rows of problems with tests, none of them of your exam", required=True),
        "--rows": value(str, "A-B", "of FILE, by MBPP's task_id, as 601-974", default=""),
        "--samples": value(int, "N", "attempts at each problem (default 8)", default=8),
        "--attempts": value(Path, "FILE", "where attempts are kept: read where it has them"),
        "--out": value(Path, "FILE", "where the probe is written", required=True),
    }
    about = "fit a probe of the judge on executed attempts of the solver"
    group.add("train", train, about, takes, json="print its figures as JSON", epilog=TRAIN)
    takes = {
        "items": value(Path, "ITEMS", "what was sent to /v1/verdicts"),
        "receipt": value(Path, "RECEIPT", "what it answered"),
        "--item": value(int, "N", "read this one again, and no other"),
    }
    group.add("verify", verify, "read again what a judge has signed", takes, epilog=VERIFY)


def attempts(options: argparse.Namespace) -> int:
    config = composed(options)
    from codezero.commands.evaluate import checked_groups, judge_groups
    from codezero.monitor.cards import audited_skill, mistakes, print_marked
    from codezero.system.signals import Share

    with ExitStack() as stack:
        say(Share(f"reading and checking {options.file}"))
        groups, count, skipped = checked_groups(options.file, options.skip_bad, stack)
        marked = judge_groups(config, groups, audit=options.audit, say=say, of=count)
        if options.json:
            contradictions, compared = Counter[str](), list[list[tuple[float, bool]]]()
            for item, known in marked:
                contradictions += item.contradictions()
                compared.append(item.compared())
                print(json.dumps(item.to_json(known) | ({"skipped_lines": skipped} if skipped else {})), flush=True)
            for line in filter(None, (*mistakes(contradictions), audited_skill(compared))):
                print(f"codezero: {line}", file=sys.stderr)
        else:
            print_marked(marked)
        if skipped:
            left = f"{skipped} of {skipped + count} lines cannot be used and are left out"
            print(f"codezero: {left}", file=sys.stderr if options.json else sys.stdout)
    return DONE


def serve(options: argparse.Namespace) -> int:
    """Serve until a signal."""
    config = composed(options)
    from codezero.market.judge_service import JudgeService
    from codezero.ops.judge import build_parts
    from codezero.rollout.client import serving
    from codezero.swarm.identity import Identity
    from codezero.system.signals import Stop

    token, stop = os.environ.get(TOKEN, ""), Stop()
    host = f"[{options.host}]" if ":" in options.host else options.host
    with ExitStack() as stack:
        identity = Identity.load_or_create(Path(config.swarm.identity))
        parts = build_parts(config, identity, not options.no_receipts, say, stack)
        app = JudgeService(parts, token=token, is_open=options.open).app()
        port = stack.enter_context(serving(app, f"{host}:{options.port}", "--host", token, TOKEN))
        where, peer = f"http://{host}:{port}", identity.peer_id
        answer(options, {"url": where, "peer_id": peer}, f"codezero: judging at {where}, as {peer}")
        with stop.on_signals():
            while not stop.wait(1.0):
                pass
    return INTERRUPTED if stop.received is signal.SIGINT else DONE


def train(options: argparse.Namespace) -> int:
    config = composed(options)
    from codezero.ops.attempts import Wanted, train_probe

    tokens, kept = config.solver.max_new_tokens, options.attempts
    request = Wanted(options.problems, options.rows, options.samples, tokens, config.seed, kept)
    with ExitStack() as stack:
        probe = train_probe(config, request, stack, say)
    with translated(ConfigError, f"--out={options.out} cannot be written", OSError):
        probe.write(options.out)
    area, low, high = probe.within
    figures = {"within_groups": probe.within, "groups": probe.groups, "pairs": probe.pairs, "layer": probe.layer}
    seen = f"{probe.pairs} pairs of {probe.groups} problems"
    line = f"{options.out}: AUROC within groups {area:.2f} [{low:.2f}, {high:.2f}] on problems not fitted on, {seen}"
    answer(options, figures, f"{line}; use it with evaluator.probe={options.out}")
    return DONE


def verify(options: argparse.Namespace) -> int:
    config = composed(options)
    from codezero.ops.judge import verify

    result = verify(config, options.items, options.receipt, options.item, say)
    answer(options, result, "\n".join(result.lines()))
    return FAILED if result.refuted else DONE
