"""All checks at once, each with a deadline of its own: none can hold up or bring down another."""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

import msgspec

from codezero.config import NodeConfig
from codezero.errors import CodeZeroError
from codezero.monitor.text import clean
from codezero.ops import doctor_machine as machine
from codezero.ops import doctor_network as network
from codezero.ops import doctor_services as services
from codezero.ops.doctor_machine import Check, CheckState, Finding, fail, unknown


def checks(config: NodeConfig, overrides: Sequence[str]) -> list[Check]:
    """For a node of this config, which was composed of `overrides`; in the order in which people read them."""

    def clock() -> Finding:
        return machine.clock(services.block_time(config.chain), config.chain.round_seconds)

    return [
        Check("python", machine.python),
        Check("hardware", lambda: machine.hardware(overrides), machine.HARDWARE_SECONDS + 1, machine.HARDWARE),
        Check("disk", lambda: machine.disk(Path(config.run.directory))),
        Check("clock", clock, services.CHAIN_SECONDS + 2),
        Check("page port", lambda: network.page_port(config)),
        Check("p2p port", lambda: network.p2p_port(config.swarm, network.running_network(config))),
        Check("ways in", lambda: network.ways_in(config.swarm), 3 * network.DIAL_SECONDS),
        Check("reach", lambda: network.reach(config.swarm, network.running_network(config)), 20.0),
        Check("chain", lambda: services.chain(config.chain), services.CHAIN_SECONDS + 2),
        Check("judge", lambda: services.judge(config.evaluator), services.JUDGE_SECONDS + 5),
        Check("hub", lambda: services.hub(config), services.HUB_SECONDS + 9),
        Check("identity", lambda: services.identity(Path(config.swarm.identity))),
        Check("login", lambda: services.login(config)),
    ]


Outcome = Finding | list[Finding]
MAX_TEXT = 600
"""Characters of a line's two parts each."""
WORDS = {CheckState.UNKNOWN: "could not tell"}


def diagnose(checks: Sequence[Check]) -> Iterator[Finding]:
    """The findings, in the order of `checks`; all of them within the longest deadline."""
    began = time.monotonic()
    running = [(check, _begin(check)) for check in checks]
    for check, outcome in running:
        yield from _result(check, outcome, max(0.0, began + check.seconds - time.monotonic()))


def _begin(check: Check) -> "Future[Outcome]":
    outcome: Future[Outcome] = Future()
    # A daemon: what hangs in a name look-up is left behind.
    threading.Thread(target=_run, args=(check, outcome), name=f"check-{check.name}", daemon=True).start()
    return outcome


def _run(check: Check, outcome: "Future[Outcome]") -> None:
    """The one place where any error of a check is caught."""
    try:
        outcome.set_result(check.run())
    except CodeZeroError as error:  # what a node would end with too
        outcome.set_result(fail(_first_line(error)))
    except Exception as error:  # noqa: BLE001 - a check that is broken says nothing about the machine
        outcome.set_result(unknown(f"the check itself failed: {type(error).__name__}: {_first_line(error)}"))


def _result(check: Check, outcome: "Future[Outcome]", seconds: float) -> list[Finding]:
    try:
        findings = outcome.result(seconds)
    except TimeoutError:
        findings = unknown(f"no answer within {check.seconds:g} s")
    if isinstance(findings, list):
        return findings
    return [findings.named(name) for name in check.finds or (check.name,)]


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no reason given"])[0]


def line(finding: Finding) -> str:
    """For people. Foreign text is cleaned."""
    text = clean(finding.text, MAX_TEXT) + (f"; {clean(finding.mend, MAX_TEXT)}" if finding.mend else "")
    return f"{WORDS.get(finding.state, str(finding.state)):14}  {finding.check:10}  {text}"


def as_object(findings: Sequence[Finding]) -> dict[str, object]:
    """For programs: whether nothing failed, and each finding with its check, state, said and mend."""
    return {"ok": healthy(findings), "findings": msgspec.to_builtins(findings)}


def healthy(findings: Sequence[Finding]) -> bool:
    """Did no check fail? Warnings and what is unknown are no failures."""
    return not any(finding.state is CheckState.FAIL for finding in findings)
