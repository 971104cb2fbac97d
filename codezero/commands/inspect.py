"""Commands that look: `status` of a run, `doctor` of the machine."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from codezero.commands.common import DONE, FAILED, INTERRUPTED, OF_A_RUN, Command, take_json, take_settings

if TYPE_CHECKING:
    from codezero.ops.doctor_machine import Finding


def add(command: Command) -> None:
    page = command("status", status, "one page about a run: step, truth, peers, submissions and why not")
    take_settings(page, OF_A_RUN)
    take_json(page)
    page.add_argument(
        "--watch", action="store_true", help="show it again and again; elsewhere than on a terminal by lines"
    )
    page.add_argument(
        "--every", type=float, default=2.0, metavar="SECONDS", help="with --watch: 0.2 to 3600 (default 2)"
    )
    machine = command("doctor", doctor, "check whether a node can run here; every line says how to mend what is wrong")
    take_settings(machine, "the settings of the node that is to run, for example model=qwen or network=peer")
    take_json(machine)


def status(options: argparse.Namespace) -> int:
    from codezero.inspection.status import as_json, newest_run, print_status, read_run, watch
    from codezero.settings import compose

    config = compose(options.overrides)
    if options.watch:
        return INTERRUPTED if watch(config, options.every, as_lines=options.json) else DONE
    run = read_run(newest_run(Path(config.run.directory), config.run.name))
    if options.json:
        print(as_json(run))
    else:
        print_status(run)
    return DONE


def doctor(options: argparse.Namespace) -> int:
    """Exit code 0 when nothing failed, whatever else could be better or is unknown."""
    from codezero.ops.doctor import as_object, checks, diagnose, healthy, line
    from codezero.settings import compose

    config = compose(options.overrides)
    findings: list[Finding] = []
    for finding in diagnose(checks(config, options.overrides)):
        findings.append(finding)
        if not options.json:
            print(line(finding), flush=True)
    if options.json:
        print(json.dumps(as_object(findings)))
    return DONE if healthy(findings) else FAILED
