"""The command `python -m tools.nano`."""

import argparse
import json
from pathlib import Path

from codezero.errors import ConfigError
from codezero.nano import WEIGHTS
from tools import nano


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.nano", description=nano.__doc__)
    into = f"where to write them (default {WEIGHTS})"
    parser.add_argument("--out", type=Path, metavar="DIR", default=WEIGHTS, help=into)
    parser.add_argument("--seed", type=int, default=0, help="chooses data and initial weights (default 0)")
    options = parser.parse_args()
    if options.out.exists() and not options.out.is_dir():
        parser.error(f"--out={options.out} is no folder; name one")
    from codezero.environments.reasoning_gym import ReasoningGym
    from tools.nano.build import build  # --help does without torch

    try:
        drill = ReasoningGym().pair
    except ConfigError as error:
        parser.error(str(error))
    print(json.dumps(build(options.out, drill, seed=options.seed)))


if __name__ == "__main__":
    main()
