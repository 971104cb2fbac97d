"""`python -m codezero` and the `codezero` command."""

import errno  # built in or loaded by `os`, as all here: no file of the folder it is started in can take their place
import io
import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class Output(io.FileIO):
    """stdout or stderr. What a terminal that is gone would show is lost, and is no error."""

    error: OSError | None = None  # the last one, also where whoever wrote went on, as argparse does

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno == errno.EIO and stat.S_ISCHR(os.fstat(self.fileno()).st_mode):
                return memoryview(data).nbytes
            self.error = error
            raise


def open_outputs() -> dict[str, Output]:
    """Put Output below both. A closed one is opened first, else the next file would get its number. To a closed stdout
    nothing can be written, which is an error; what goes to a closed stderr is lost."""
    for number, way in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, way)
    outputs = {"stdout": Output(1, "w", closefd=False), "stderr": Output(2, "w", closefd=False)}
    for name, raw in outputs.items():
        usual = getattr(sys, name) or io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace")
        buffer = raw if usual.write_through else io.BufferedWriter(raw)
        ways = usual.line_buffering, usual.write_through
        setattr(sys, name, io.TextIOWrapper(buffer, usual.encoding, usual.errors, None, *ways))
    return outputs


def main() -> None:
    if not sys.flags.safe_path:
        del sys.path[0]  # the folder it is started in, or the one with the script: neither has code of ours
    os.environ["PYTHONSAFEPATH"] = "1"  # of what libraries start; see `system.child.python`
    import contextlib  # only now: the folder may have a file of any module's name
    import signal

    outputs = open_outputs()
    try:
        from codezero.cli import main as run  # takes its time, in which somebody may press Ctrl-C

        try:
            code = run(sys.argv[1:])
        except SystemExit as ended:
            code = int(ended.code or 0)
        sys.stdout.flush()
        if unwritten := outputs["stdout"].error:
            raise unwritten
    except KeyboardInterrupt as stop:
        from codezero.system.signals import Terminated

        print(f"codezero: {str(stop) or 'interrupted'}", file=sys.stderr)
        code = 128 + stop.signal if isinstance(stop, Terminated) else 130
    except OSError as error:
        if (name := next((name for name, output in outputs.items() if output.error is error), None)) is None:
            raise
        if isinstance(error, BrokenPipeError):  # a reader who has enough: end as other tools do
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            signal.raise_signal(signal.SIGPIPE)
        with contextlib.suppress(OSError):
            print(f"codezero: {name} cannot be written: {error.strerror}", file=sys.stderr)
        with open(os.devnull, "wb") as nothing:  # for what is still buffered
            for output in outputs.values():
                os.dup2(nothing.fileno(), output.fileno())
        code = 1
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # all is done: nobody shall read a trace of the interpreter's own end
    sys.exit(code)


if __name__ == "__main__":
    main()
