"""`python -m codezero` and the `codezero` command."""

import os
import sys


def main() -> None:
    if not sys.flags.safe_path:
        del sys.path[0]  # the folder it is started in, or the one with the script: neither has code of ours
    os.environ["PYTHONSAFEPATH"] = "1"  # of what libraries start; see `system.child.python`
    import signal  # only now: the folder may have a file of any module's name

    try:
        from codezero.cli import main as cli_main  # takes its time, in which somebody may press Ctrl-C

        code = cli_main(sys.argv[1:])
    except KeyboardInterrupt:
        print("codezero: interrupted", file=sys.stderr)
        code = 130
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # all is done: nobody shall read a trace of the interpreter's own end
    sys.exit(code)


if __name__ == "__main__":
    main()
