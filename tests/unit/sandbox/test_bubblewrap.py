"""The jail: honest programs pass in it, hostile ones neither pass, nor last, nor leave anything behind."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from builders.hostile_programs import HOSTILE

from codezero.errors import ConfigError, SandboxError
from codezero.sandbox import jail
from codezero.sandbox.base import Execution, Job, Outcome
from codezero.sandbox.bubblewrap import BubblewrapSandbox

PASS, FAIL, UNKNOWN = Outcome.PASS, Outcome.FAIL, Outcome.UNKNOWN
TESTS = ("assert f(2) == 4", "assert f(-3) == -6")
RIGHT = "def f(x):\n    return x * 2"


@pytest.fixture(scope="module")
def sandbox(jailed: None) -> Iterator[BubblewrapSandbox]:
    with BubblewrapSandbox(seconds=1, memory_mib=160) as sandbox:
        yield sandbox


def job(code: str, tests: Sequence[str] = TESTS) -> Job:
    return Job(code, tuple(tests))


def in_jails() -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if "--disable-userns" not in (words := process.info["cmdline"] or [])
        and "import main; main()" in " ".join(words)
    ]


@pytest.mark.parametrize(("code", "tests"), [
    (RIGHT, TESTS), ("class A:\n    def g(self): return 2\nclass B(A): pass\ndef f(x): return B().g() * x", TESTS),
    ("import heapq\ndef f(a):\n    heapq.heapify(a)\n    return heapq.heappop(a)", ["assert f([3, 1, 2]) == 1"]),
    ("def g(n):\n    yield from range(n)\ndef f(n): return list(g(n))", ["assert f(3) == [0, 1, 2]"]),
    ("from fractions import Fraction\ndef f(x): return int(Fraction(x, 1) * 2)", TESTS),
    ("from collections import Counter\ndef f(s): return Counter(s)", ["assert f('aab') == {'a': 2, 'b': 1}"]),
    ("import sys\nsys.setrecursionlimit(9999)\ndef f(n): return n and 1 + f(n - 1)", ["assert f(5000) == 5000"]),
    ("def f(x): return {frozenset([1]): (1.5, b'a', None, {2})}",
        ["assert f(0) == {frozenset({1}): (1.5, b'a', None, {2})}"]),
    ("def f(x): return 10 ** 6000", ["assert f(0) == 10 ** 6000"]),
    ("def f(x): return float('nan')", ["assert f(0) != f(0)"]),
    ("def f(x): return [float('inf'), -float('inf')]", ["assert f(0) == [float('inf'), float('-inf')]"]),
    ("def f(a): a.sort(); return a", ["assert f([2, 1]) == [1, 2]", "xs = [3, 1]\nassert f(xs) == [1, 3]"]),
    ("print('loud')\n" + RIGHT, TESTS),
    ("import threading\nthreading.Thread(target=threading.Event().wait).start()\n" + RIGHT, TESTS),
    ("# -*- coding: utf-8 -*-\ndef f(x): return 'ö' * x", ["assert f(2) == 'öö'"]),
    ("from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\ndef f(x): return P(x).x * 2", TESTS),
])  # fmt: skip
def test_honest_programs_pass_and_fail_when_their_answer_is_another(
    sandbox: BubblewrapSandbox, code: str, tests: Sequence[str]
) -> None:
    assert sandbox.run(job(code, tests)) == Execution(PASS)
    (first, *_) = tests
    wrong = sandbox.run(job(code, [*tests, first.replace("assert ", "assert not (") + ")"]))
    assert (wrong.outcome, wrong.reason) == (FAIL, f"test {len(tests) + 1} fails")


@pytest.mark.slow
@pytest.mark.parametrize(("code", "reason"), [
    ("def f(x)\n    return x", "SyntaxError"), ("def f(x):\n    return y", "NameError"),
    ("def g(x):\n    return x * 2", "NameError"), ("def f(x):\n    x * 2", "test 1 fails"),
    ("def f(x):\n    return x if x > 0 else 0", "test 1 fails"),
    ("def f(n):\n    return f(n + 1)", "RecursionError"),
    ("def f(n):\n    raise ValueError('\\x1b[2J' + 'long' * 1000)", "ValueError"), ("\ud800", "Error"),
    ("def f(x):\n    return [0] * 10**9", "memory limit"), ("def f(x):\n    while True: pass", "time limit"),
    ("import time\ntime.sleep(60)", "time limit"),
    ("import time\ndef f(x):\n    time.sleep(99)\n    return 2 * x", "time limit"),
])  # fmt: skip
def test_the_codes_own_faults_fail(sandbox: BubblewrapSandbox, code: str, reason: str) -> None:
    execution = sandbox.run(job(code))
    assert (execution.outcome, reason in execution.reason) == (FAIL, True), execution
    assert len(execution.reason) <= 200 and execution.reason.isprintable()


@pytest.mark.parametrize("code", [
    "import numpy\n" + RIGHT, "import module_of_no_name\n" + RIGHT, "open('/etc/passwd')\n" + RIGHT,
    "#" * 20000 + "\n" + RIGHT,
])  # fmt: skip
def test_what_the_jail_cannot_tell_is_unknown(sandbox: BubblewrapSandbox, code: str) -> None:
    assert sandbox.run(job(code)).outcome is UNKNOWN


SLOW = frozenset((
    "fork bomb that sleeps", "memory of children", "one file", "memory file", "exit in a call", "hard exit in a call",
    "killed by itself", "kills its parents", "abort", "wide", "ignores signals",
    "thread bomb", "ptrace", "closes all", "catches all", "endless output", "patched builtins",
))  # fmt: skip
"""Programs that take seconds, or of which another of their kind is run more often."""


@pytest.mark.parametrize(
    "code", [pytest.param(code, id=name, marks=[pytest.mark.slow] * (name in SLOW)) for name, code in HOSTILE.items()]
)
def test_hostile_programs_do_not_pass_and_leave_nothing(sandbox: BubblewrapSandbox, code: str) -> None:
    execution = sandbox.run(job(code))
    assert execution.outcome is not PASS
    assert "AssertionError" not in execution.reason
    _, left = psutil.wait_procs(in_jails(), timeout=10)
    assert all(process.status() == psutil.STATUS_ZOMBIE for process in left)  # a container's first process buries none
    assert sandbox.run(job(RIGHT)).outcome is PASS


@pytest.mark.parametrize("path", [
    "/etc/passwd", "/proc/self/environ", "/sys", "/home", "/root", "/var", "/run", str(Path.home()),
    str(Path(__file__).parents[3]),
])  # fmt: skip
def test_files_of_the_machine_cannot_be_seen(sandbox: BubblewrapSandbox, path: str) -> None:
    assert (
        sandbox.run(job(f"import os\ndef f(x): return os.path.exists({path!r})", ["assert not f(1)"])).outcome is PASS
    )


@pytest.mark.parametrize("path", ["/usr/a", "/a", "/jail/a", "/jail/main.py", "/dev/a", "/bin/a"])
def test_nothing_but_tmp_can_be_written(sandbox: BubblewrapSandbox, path: str) -> None:
    code = "def f(p):\n    try:\n        open(p, 'w')\n    except OSError:\n        return False\n    return True"
    assert sandbox.run(job(code, [f"assert not f({path!r})", "assert f('/tmp/a') and f('/dev/shm/a')"])).outcome is PASS


def test_the_network_cannot_be_reached(sandbox: BubblewrapSandbox) -> None:
    code = (
        "import socket\ndef f(host):\n    try:\n        socket.create_connection((host, 53), timeout=0.2)\n"
        "    except OSError:\n        return False\n    return True"
    )
    assert sandbox.run(job(code, ["assert not f('1.1.1.1')", "assert not f('127.0.0.1')"])).outcome is PASS


def test_the_environment_of_this_process_stays_outside(
    sandbox: BubblewrapSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    code = "import os\ndef f(x): return 'hunter2' in repr(os.environ) or 'SECRET_TOKEN' in os.environ"
    assert sandbox.run(job(code, ["assert not f(1)"])).outcome is PASS


def test_no_descriptor_of_this_process_is_open_inside(sandbox: BubblewrapSandbox) -> None:
    number = os.open(__file__, os.O_RDONLY)
    os.set_inheritable(number, True)
    code = (
        "import os\ndef f(x):\n    for n in range(64):\n        try:\n"
        "            if b'test_no_descriptor' in os.pread(n, 10**6, 0): return True\n"
        "        except OSError: pass\n    return False"
    )
    try:
        assert sandbox.run(job(code, ["assert not f(1)"])).outcome is PASS
    finally:
        os.close(number)


def test_one_program_leaves_nothing_for_the_next(sandbox: BubblewrapSandbox) -> None:
    write = "open('/tmp/left', 'w').write('x')\n" + RIGHT
    read = "import os\ndef f(x): return os.path.exists('/tmp/left')"
    executed = sandbox.run_many([job(write), job(read, ["assert not f(1)"])])
    assert [execution.outcome for execution in executed] == [PASS, PASS]


def test_a_check_that_asks_nothing_of_the_code_does_not_excuse_code_that_fails(sandbox: BubblewrapSandbox) -> None:
    assert sandbox.run(job("raise ValueError", ["assert 1 == 1"])).outcome is FAIL
    assert sandbox.run(job(RIGHT, [])).outcome is UNKNOWN


def test_a_machine_without_bubblewrap_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "apt install bubblewrap" in jail.why_not() or sys.platform != "linux"
    with pytest.raises(SandboxError):
        BubblewrapSandbox()


@pytest.mark.parametrize(("said", "remedy"), [
    ("bwrap: setting up uid map: Permission denied", "AppArmor"),
    ("bwrap: Unknown option --disable-userns", "newer is needed"),
    ("bwrap: No permissions to create new namespace, likely because the kernel does not allow it", "Docker"),
    ("bwrap: Creating new namespace failed: Operation not permitted", "Docker"),
])  # fmt: skip
def test_a_kernel_that_forbids_the_jail_is_reported_with_the_remedy(
    said: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # root starts bwrap as nobody
        program = Path(folder) / "bwrap"
        shell = shutil.which("sh")
        program.write_text(f'#!{shell}\necho "{said}" >&2\nexit 1\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", folder)
        reason = jail.why_not()
    assert said in reason and remedy in reason and "\n" not in reason


def test_a_package_is_lent_when_it_is_named_and_missed_by_its_name_when_not(sandbox: BubblewrapSandbox) -> None:
    code = "import numpy as np\ndef f(x):\n    return np.array([x, x]).sum()"
    assert sandbox.run(job(code)) == Execution(UNKNOWN, "lacks the package numpy (audit.packages)")
    program = Job("import numpy\nprint(1)", ('{"input": "", "output": "1"}',), stdio=True)
    assert sandbox.run(program).reason == "lacks the package numpy (audit.packages)"
    with BubblewrapSandbox(packages=["numpy"]) as lent:
        assert lent.run(job(code)) == Execution(PASS)
        assert lent.run(job(code.replace(".sum()", ".prod()"))).reason == "test 2 fails"
        assert lent.run(program).outcome is PASS
        write = "import numpy\nopen(numpy.__file__, 'a')\n" + RIGHT
        assert "denied" in lent.run(job(write)).reason or "Read-only" in lent.run(job(write)).reason
        assert lent.run(job("import torch\n" + RIGHT)).reason == "lacks the package torch (audit.packages)"
    with pytest.raises(ConfigError, match="'no-such-package' is not installed"):
        BubblewrapSandbox(packages=["no-such-package"])


EXPECTED = "try:\n    f(1)\n    assert False\nexcept {}:\n    assert {}"
COUNTER = """
class C:
    def __init__(self): self.n = 0
    def add(self, n):
        self.n += n
        return self
"""
POINT = "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\ndef f(x): return P(x)"
DOUBLE = "def f(x): return x * 2"


@pytest.mark.parametrize(("code", "tests"), [
    ("def f(n):\n    for i in range(n): yield i", ["assert list(f(3)) == [0, 1, 2]", "assert next(f(2)) == 0"]),
    ("class P:\n    x = 1\ndef f(): return P()", ["assert f().x == 1"]),
    ("def f(x): raise ValueError('bad')", [EXPECTED.format("ValueError as e", "str(e) == 'bad'")]),
    ("class E(KeyError): pass\ndef f(x): raise E(x)", [EXPECTED.format("E as e", "e.args == (1,)")]),
    ("def f(root): return root.v", ["class N:\n    v = 4\nassert f(N()) == 4"]),
    ("def f(r):\n    r.v += 1\n    return r", ["class N:\n    v = 4\nn = N()\nassert f(n) is n and n.v == 5"]),
    ("def f(xs): xs.sort()", ["xs = [2, 1]\nf(xs)\nassert xs == [1, 2]"]),
    ("def f(g, x): return g(g(x))", ["assert f(lambda x: x + 1, 1) == 3"]),
    (DOUBLE, ["for x in range(9):\n    assert f(x) == x + x"]),
    (DOUBLE, ["assert all(f(x) == x + x for x in range(9))", "assert callable(f) and f.__name__ == 'f'"]),
    (DOUBLE, ["def check(g):\n    assert g(2) == 4\ncheck(f)"]),
    (COUNTER, ["c = C()\nassert c.add(2).add(3) is c\nassert c.n == 5 and isinstance(c, C)"]),
    (POINT, ["assert f(1) == f(1) != f(2)", "assert f(3).x == 3"]),
    ("import math\ndef f(x): return math.pi * x", ["assert math.isclose(f(1), 3.141592653589793)"]),
    ("import contextlib\n@contextlib.contextmanager\ndef f(x): yield x", ["with f(3) as y:\n    assert y == 3"]),
])  # fmt: skip
def test_every_kind_of_test_is_decided(sandbox: BubblewrapSandbox, code: str, tests: Sequence[str]) -> None:
    assert sandbox.run(job(code, tests)) == Execution(PASS)
    assert sandbox.run(job("def f(*_): return 'wrong'", tests)).outcome is FAIL


@pytest.mark.parametrize(
    "code",
    ["def f(x): yield x", "def f(x): return map(abs, [x])", "def f(x): return zip([x])", "def f(x): return f",
     "async def f(x): return x * 2", "def f(x): return iter([x])", "class V: pass\ndef f(x): return V()"],
)  # fmt: skip
def test_what_can_never_equal_plain_data_fails(sandbox: BubblewrapSandbox, code: str) -> None:
    assert sandbox.run(job(code)) == Execution(FAIL, "test 1 fails")


def test_tests_that_no_code_could_decide_are_said_before_any_runs(sandbox: BubblewrapSandbox) -> None:
    for test in ("f(1)", "assert ("):
        assert sandbox.refusal(job("", [test]))
    assert sandbox.refusal(job("", TESTS)) == ""


def test_the_jail_lends_nothing_to_a_function(sandbox: BubblewrapSandbox) -> None:
    lent = "import sys\ndef f(x): return [n for n in sys.modules if 'codezero' in n or 'jail' in n], sys.argv"
    assert sandbox.run(job(lent, ["assert f(1) == ([], ['main.py'])"])) == Execution(PASS)
    assert sandbox.run(job("x: List[int] = []\ndef f(x): return 2 * x")).reason.startswith("NameError")
    assert sandbox.run(job("def f(x: List[int]): return 2 * x")).reason.startswith("NameError")
    assert sandbox.run(job("def f(x): return __name__", ["assert f(1) != '__main__'"])) == Execution(PASS)
    deep = "def f(n): return n and 1 + f(n - 1)"
    assert sandbox.run(job(deep, ["assert f(990) == 990"])).outcome is PASS
    assert sandbox.run(job(deep, ["assert f(1010) == 1010"])).outcome is FAIL


def test_an_answer_that_ends_its_process_passes_no_test_that_catches_all(sandbox: BubblewrapSandbox) -> None:
    test = "try:\n    f(1)\n    x = 1 / 0\nexcept:\n    pass\nassert True"
    assert sandbox.run(job("def f(x): raise ValueError", [test])) == Execution(PASS)
    assert sandbox.run(job("import os\ndef f(x): os._exit(0)", [test])).outcome is FAIL
