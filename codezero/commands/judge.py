"""`judge serve`: the judge for other programs, over HTTP; `judge verify`: did a judge read what it signed?"""

import argparse
import os
import signal
from pathlib import Path

from codezero.commands.common import DONE, FAILED, INTERRUPTED, Commands, answer, composed, flag, say, value

TOKEN = "CODEZERO_JUDGE_TOKEN"
"""Environment variable with what callers from other machines have to bear."""
SERVE = f"""Routes: /request-question, /submit-answer and /current_clue for rl-swarm's JudgeClient; /v1/verdicts for
batches, with a signed receipt; /v1/card says who the judge is and how far it can be believed; /openapi.json has all.
Nothing that is sent is executed.
  codezero judge serve
  curl -s localhost:8090/v1/verdicts -H 'Content-Type: application/json' -d @items.json > receipt.json
  codezero judge verify items.json receipt.json
Other machines need {TOKEN}: export it here, and send it as `Authorization: Bearer`.
"""
VERIFY = """Checks signature and root, then reads programs again with evaluator.model, as the signer should have: some
at random of one receipt; of two, those in which they differ, up to the first that is refuted. It proves that these
weights read the program so, not that the program is right. Exit code 1: something was refuted, or does not hold.
"""


def add(commands: Commands) -> None:
    group = commands.group("judge", "the judge as a service, and its receipts")
    takes = {
        "--host": value(str, "HOST", "where to listen (default 127.0.0.1)", default="127.0.0.1"),
        "--port": value(int, "PORT", "0 takes any (default 8090)", default=8090),
        "--open": flag(f"let whoever reaches the port use the routes of JudgeClient without {TOKEN}"),
        "--no-receipts": flag("sign none, which spares the judge's float64 copy"),
    }
    group.add("serve", serve, "serve verdicts over HTTP", takes, json="print where it is as JSON", epilog=SERVE)
    takes = {
        "items": value(Path, "ITEMS", "what was sent to /v1/verdicts"),
        "receipt": value(Path, "RECEIPT", "what it answered"),
        "--against": value(Path, "OTHER", "what another judge answered to the same"),
        "--item": value(int, "N", "read this one again, and no other"),
    }
    group.add("verify", verify, "read again what a judge has signed", takes, epilog=VERIFY)


def serve(options: argparse.Namespace) -> int:
    """Until SIGINT or SIGTERM."""
    config = composed(options)
    from contextlib import ExitStack

    from codezero.market.judge_service import JudgeService
    from codezero.rollout.servers import serving
    from codezero.swarm.identity import Identity
    from codezero.system.signals import Stop
    from codezero.wiring.judge import build_parts

    token, stop = os.environ.get(TOKEN, ""), Stop()
    host = f"[{options.host}]" if ":" in options.host else options.host
    with ExitStack() as stack:
        identity = Identity.load_or_create(Path(config.swarm.identity))
        parts = build_parts(config, identity, not options.no_receipts, say, stack)
        app = JudgeService(parts, token=token, is_open=options.open).app()
        port = stack.enter_context(serving(app, f"{host}:{options.port}", "--host", token, TOKEN))
        where = f"http://{host}:{port}"
        answer(
            options, {"url": where, "peer_id": identity.peer_id}, f"codezero: judging at {where}, as {identity.peer_id}"
        )
        with stop.on_signals():
            while not stop.wait(1.0):
                pass
    return INTERRUPTED if stop.received is signal.SIGINT else DONE


def verify(options: argparse.Namespace) -> int:
    config = composed(options)
    from codezero.wiring.judge import verify

    receipts = [options.receipt, *([options.against] if options.against else [])]
    result = verify(config, options.items, receipts, options.item, say)
    answer(options, result, "\n".join(result.lines()))
    return FAILED if result.refuted else DONE
