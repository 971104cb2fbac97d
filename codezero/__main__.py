"""`python -m codezero` and the `codezero` command."""

import sys

from codezero.cli import main as cli_main


def main() -> None:
    sys.exit(cli_main(sys.argv[1:]))


if __name__ == "__main__":
    main()
