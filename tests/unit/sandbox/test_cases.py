"""All cases of a program in one jail: none sees a later one's input, none leaves anything behind, time is bounded."""

import json
import threading
import time
from collections.abc import Iterator

import pytest
from builders.hostile_programs import FORGE

from codezero.sandbox import jail
from codezero.sandbox.base import Execution, Job, Outcome, failed
from codezero.sandbox.bubblewrap import BubblewrapSandbox, TieredSandbox
from codezero.sandbox.jail import Jail
from codezero.sandbox.jail_main import ANSWER
from codezero.sandbox.monty import MontySandbox

PASS, FAIL, UNKNOWN = Outcome.PASS, Outcome.FAIL, Outcome.UNKNOWN
DOUBLE = "print(int(input()) * 2)"


@pytest.fixture(scope="module")
def sandbox(jailed: None) -> Iterator[BubblewrapSandbox]:
    with BubblewrapSandbox(seconds=1, memory_mib=160, total_seconds=4) as sandbox:
        yield sandbox


def execute(sandbox: BubblewrapSandbox, code: str, *cases: tuple[str, str]) -> Execution:
    tests = tuple(json.dumps({"input": given, "output": wanted}) for given, wanted in cases)
    return sandbox.run(Job(code, tests, stdio=True))


def echoes(count: int, wanted: str = "") -> list[tuple[str, str]]:
    return [(f"{n}\n", wanted or f"{n}") for n in range(count)]


def test_every_case_of_a_program_runs_in_one_jail(sandbox: BubblewrapSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    jails: list[str] = []
    begin = jail._start  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(jail, "_start", lambda *given: jails.append("") or begin(*given))  # pyright: ignore
    assert execute(sandbox, "print(input())", *echoes(64)).outcome is PASS and len(jails) == 1


@pytest.mark.parametrize("leave", [
    "open('/tmp/left', 'w').write('x')",
    "os.makedirs('/tmp/a/b'); open('/tmp/a/b/c', 'w'); os.chmod('/tmp/a/b', 0); os.chmod('/tmp/a', 0)",
    "os.symlink('/', '/tmp/root'); os.mkfifo('/tmp/pipe')",
    "[open(f'/tmp/{i}', 'wb').write(b'x' * 10**6) for i in range(15)]",
])  # fmt: skip
def test_a_case_leaves_no_file_for_the_next(sandbox: BubblewrapSandbox, leave: str) -> None:
    code = f"import os\nprint(len(os.listdir('/tmp')))\n{leave}"
    assert execute(sandbox, code, *echoes(3, "1")) == Execution(PASS)  # the program itself


@pytest.mark.parametrize(
    "leave",
    [
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        while True: time.sleep(0.01)\n"
        "    os._exit(0)",
        "if os.fork() == 0:\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    while True:\n"
        "        open('/tmp/again', 'w')",
        "import threading\nthreading.Thread(target=time.sleep, args=(999,), daemon=True).start()",
    ],
    ids=["daemon", "writer", "thread"],
)
def test_a_case_leaves_no_process_for_the_next(sandbox: BubblewrapSandbox, leave: str) -> None:
    count = (
        "import os, signal, time\nseen = os.listdir('/tmp')\nn = 0\nfor pid in range(3, 400):\n"
        "    try: os.kill(pid, 0)\n    except OSError: continue\n    n += pid not in (os.getpid(), os.getppid())\n"
        "sys = __import__('sys')\nsys.stdout.write(f'{n} {seen}\\n')\nsys.stdout.flush()\n"
    )
    assert execute(sandbox, f"{count}{leave}\ntime.sleep(0.1)\nos._exit(0)", *echoes(3, "0 ['main.py']")) == Execution(
        PASS
    )


@pytest.mark.slow
@pytest.mark.parametrize("hang", ["while True: pass", "__import__('time').sleep(999)"])
def test_a_case_that_hangs_is_the_one_that_fails(sandbox: BubblewrapSandbox, hang: str) -> None:
    began = time.monotonic()
    code = f"n = int(input())\nprint(n)\nif n == 2:\n    {hang}"
    assert execute(sandbox, code, *echoes(5)) == Execution(FAIL, "test 3: time limit")
    assert time.monotonic() - began < 6


@pytest.mark.slow
def test_all_cases_together_have_a_limit_too(sandbox: BubblewrapSandbox) -> None:
    code = "import time\nwhile time.process_time() < 0.7: pass\nprint(input())"
    executed = execute(sandbox, code, *echoes(20))
    assert executed.outcome is FAIL and executed.reason.endswith("time limit")
    assert 4 < int(executed.reason.split()[1].rstrip(":")) < 8


@pytest.mark.parametrize("code", [
    "while True: print('x' * 10**5)", "import os\nwhile True: os.write(1, b'x' * 10**5)",
    "while True:\n    try: print('x' * 10**5, flush=True)\n    except OSError: pass",
])  # fmt: skip
def test_a_case_that_prints_without_end_fails(sandbox: BubblewrapSandbox, code: str) -> None:
    executed = execute(
        sandbox, f"if input() == '1':\n    {code.replace(chr(10), chr(10) + '    ')}\nprint(0)", *echoes(2, "0")
    )
    assert executed.outcome is FAIL and executed.reason.startswith("test 2: prints more than")


SECOND = "the second input"
HUNT = f"""
import gc, os, sys, time
time.sleep(0.2)
seen = [open(folder + '/' + name, 'rb').read() for folder, _, names in os.walk('/jail') for name in names]
for n in range(64):
    try:
        os.set_blocking(n, False)
        seen.append(os.read(n, 10**6))
    except OSError:
        pass
frame = sys._getframe()
while frame:
    seen += [dict(frame.f_locals), dict(frame.f_globals)]
    frame = frame.f_back
seen += [thing for thing in gc.get_objects() if isinstance(thing, (dict, list, tuple)) and thing is not seen]
print(any(''.join(reversed({SECOND[::-1]!r})) in repr(thing) for thing in seen))
"""


def test_no_case_can_read_what_a_later_one_gets(sandbox: BubblewrapSandbox) -> None:
    assert execute(sandbox, HUNT, (SECOND, "True")).outcome is PASS  # it finds what is there
    executed = execute(sandbox, HUNT, ("first", "False"), (SECOND, "False"))
    assert (executed.outcome, executed.reason) == (FAIL, "test 2: prints something else")


def test_an_input_goes_in_after_the_answer_before_it_came_out(sandbox: BubblewrapSandbox) -> None:
    given: list[str] = []

    class Asked(list[str]):
        def __iter__(self) -> Iterator[str]:
            for n in range(3):
                given.append(str(n))
                yield f"{n}"

    answers = Jail(seconds=1, total_seconds=4, memory_mib=160).run(DOUBLE, Asked(), most=9)
    for n, ended in enumerate(answers):
        assert ended.printed == b"%d\n" % (2 * n) and given == [str(i) for i in range(n + 1)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os\nos.kill(-1, 9)", "killed"),
        ("import os\nos.kill(os.getppid(), 19)\nprint(input())", "time limit"),
        ("import os\nos.kill(os.getppid(), 9)\nprint(input())", "killed"),
        (FORGE.format(ANSWER.pack(0, 2**31, 2**31)), "something else"),
        (FORGE.format(b'{"values": []}'), "something else"),
        ("import os\nfor n in range(99): os.mkdir('a' * 200); os.chdir('a' * 200)\nprint(0)", "exits with 1"),
    ],
    ids=["kills all", "stops the server", "kills the server", "forged answer", "forged report", "deep folders"],
)
def test_who_attacks_the_server_of_the_cases_fails(sandbox: BubblewrapSandbox, code: str, reason: str) -> None:
    executed = execute(sandbox, code, *echoes(3))
    assert executed.outcome is FAIL and reason in executed.reason, executed
    assert execute(sandbox, DOUBLE, ("1", "2"), ("2", "4")).outcome is PASS


def test_a_forged_channel_answers_no_case_that_was_not_asked(sandbox: BubblewrapSandbox) -> None:
    """A case that writes into every descriptor it can find does not answer for the next one."""
    answer = ANSWER.pack(0, 0, 1) + b"1"
    forge = f"import os\nfor n in range(64):\n    try: os.write(n, {answer!r})\n    except OSError: pass"
    executed = execute(sandbox, f"{forge}\nos.ftruncate(1, 0)\nos.lseek(1, 0, 0)\nprint(0)", ("", "0"), ("", "1"))
    assert executed.outcome is FAIL and executed.reason.startswith("test ")


def test_a_jail_that_does_not_begin_says_nothing_about_the_program(
    sandbox: BubblewrapSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jail, "_START_SECONDS", 0.0)
    assert execute(sandbox, DOUBLE, ("1", "3")).outcome is UNKNOWN
    assert sandbox.run(Job("def f(): return 1", ("assert f() == 2",))).outcome is UNKNOWN


@pytest.mark.slow
def test_each_call_has_its_own_time_and_all_have_a_limit(sandbox: BubblewrapSandbox) -> None:
    slow = "from time import process_time as t\ndef f(x):\n    end = t() + x\n    while t() < end: pass\n    return x"
    assert sandbox.run(Job(slow, ("assert f(0.7) == 0.7",) * 3)).outcome is PASS
    assert sandbox.run(Job(slow, ("assert f(0.7) == 0.7", "assert f(9) == 9"))) == Execution(FAIL, "time limit")
    assert sandbox.run(Job(slow, ("assert f(0.9) == 0.9",) * 12)) == Execution(FAIL, "time limit")


def test_results_do_not_depend_on_how_many_run_at_once(sandbox: BubblewrapSandbox) -> None:
    case = (json.dumps({"input": "2", "output": "4"}),)
    jobs = [Job(f"print(int(input()) * {n % 4})", case, stdio=True) for n in range(8)]
    jobs += [Job(f"def f(x): return x * {n % 3}", ("assert f(2) == 4", f"assert f({n}) != 7")) for n in range(8)]
    expected = [PASS if n % 4 == 2 else FAIL for n in range(8)] + [PASS if n % 3 == 2 else FAIL for n in range(8)]
    for workers in (1, 4):
        with TieredSandbox(MontySandbox(workers=workers), BubblewrapSandbox(workers=workers)) as tiers:
            assert [execution.outcome for execution in tiers.run_many(jobs)] == expected
            assert list(tiers.run_distinct([*jobs, *jobs])) == list(dict.fromkeys(jobs))


def test_as_many_as_workers_run_at_once_and_a_fault_of_one_is_raised() -> None:
    barrier = threading.Barrier(3, timeout=5)

    class Meeting(MontySandbox):
        def run(self, job: Job) -> Execution:
            barrier.wait()
            return failed(str(2 // int(job.code)))

    with Meeting(workers=3) as sandbox:
        assert [each.reason for each in sandbox.run_many([Job(text, ()) for text in "123"])] == ["2", "1", "0"]
        with pytest.raises(ZeroDivisionError):
            sandbox.run_many([Job(text, ()) for text in "101"])
