"""What a finding is; all checks at once, each with a deadline: none can hold up or bring down another."""

import multiprocessing
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from multiprocessing.pool import ThreadPool

import msgspec

from codezero.config import NodeConfig
from codezero.errors import CodeZeroError
from codezero.monitor.text import clean

MAX_TEXT = 600
"""Characters of a line's two parts each."""


class CheckState(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"
    """The check could not be done: nothing is claimed."""


class Finding(msgspec.Struct, frozen=True):
    """One line of the diagnosis."""

    state: CheckState
    text: str = msgspec.field(name="said")
    mend: str = ""
    """What to do about it; empty where nothing needs doing."""
    check: str = ""

    def named(self, check: str) -> "Finding":
        return msgspec.structs.replace(self, check=check)


ok, warn, fail, unknown = (partial(Finding, state) for state in CheckState)


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    run: Callable[[], Finding | list[Finding]]
    """Several findings have names of their own."""
    seconds: float = 15.0
    """Deadline."""


def checks(config: NodeConfig, overrides: Sequence[str]) -> list[Check]:
    """For a node of this config, which was composed of `overrides`; in the order in which people read them."""
    from codezero.ops import doctor_machine as machine
    from codezero.ops import doctor_network as network

    return [
        Check("python", lambda: ok(f"{platform.python_version()} on {sys.platform}")),
        Check("hardware", lambda: machine.hardware(overrides), machine.HARDWARE_SECONDS + 1),
        Check("disk", lambda: machine.disk(config.run.directory)),
        Check("clock", lambda: machine.clock(network.block_time(config.chain), config.chain.round_seconds)),
        Check("page port", lambda: network.page_port(config)),
        Check("p2p port", lambda: network.p2p_port(config.swarm, network.running_network(config))),
        Check("ways in", lambda: network.ways_in(config.swarm)),
        Check("reach", lambda: network.reach(config.swarm, network.running_network(config)), 20.0),
        Check("chain", lambda: network.chain(config.chain)),
        Check("judge", lambda: network.judge(config.evaluator)),
        Check("hub", lambda: network.hub(config)),
        Check("identity", lambda: network.identity(config.swarm)),
        Check("login", lambda: network.login(config)),
    ]


def diagnose(checks: Sequence[Check]) -> Iterator[Finding]:
    """The findings, in the order of `checks`; all of them within the longest deadline."""
    began, pool = time.monotonic(), ThreadPool(len(checks))  # of daemons: what hangs in a name look-up is left behind
    running = [(check, pool.apply_async(check.run)) for check in checks]
    pool.close()
    for check, outcome in running:
        try:
            findings = outcome.get(max(0.0, began + check.seconds - time.monotonic()))
        except multiprocessing.TimeoutError:
            findings = unknown(f"no answer within {check.seconds:g} s")
        except CodeZeroError as error:  # what a node would end with too
            findings = fail(str(error).partition("\n")[0])
        except Exception as error:  # noqa: BLE001 - a check that is broken says nothing about the machine
            findings = unknown(f"the check itself failed: {error!r}")
        yield from findings if isinstance(findings, list) else [findings.named(check.name)]


def line(finding: Finding) -> str:
    """For people. Foreign text is cleaned."""
    state = "could not tell" if finding.state is CheckState.UNKNOWN else finding.state
    text = "; ".join(clean(part, MAX_TEXT) for part in (finding.text, finding.mend) if part)
    return f"{state:14}  {finding.check:10}  {text}"


def as_object(findings: Sequence[Finding]) -> dict[str, object]:
    """For programs: whether nothing failed, and each finding with its check, state, said and mend."""
    return {"ok": healthy(findings), "findings": msgspec.to_builtins(findings)}


def healthy(findings: Sequence[Finding]) -> bool:
    """Did no check fail? Warnings and what is unknown are no failures."""
    return not any(finding.state is CheckState.FAIL for finding in findings)
