"""`python -m codezero` and the `codezero` command."""

import signal
import sys


def main() -> None:
    try:
        from codezero.cli import main as cli_main  # takes its time, in which somebody may press Ctrl-C

        code = cli_main(sys.argv[1:])
    except KeyboardInterrupt as stop:
        from codezero.system.signals import Terminated

        print(f"codezero: {stop or 'interrupted'}", file=sys.stderr)
        code = 143 if isinstance(stop, Terminated) else 130
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # all is done: nobody shall read a trace of the interpreter's own end
    sys.exit(code)


if __name__ == "__main__":
    main()
