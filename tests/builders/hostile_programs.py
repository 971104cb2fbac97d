"""Programs that try to break out of a jail, outlast it, or talk it into a PASS for `f(2) == 4` and `f(-3) == -6`."""

FORGE = "import os\nfor n in range(1, 64):\n    try: os.write(n, {!r})\n    except OSError: pass\nos._exit(0)"
HOSTILE = {
    "fork bomb": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "fork bomb that sleeps": "import os, time\nfor _ in range(500):\n    os.fork()\ntime.sleep(99)",
    "thread bomb": "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(99,)).start()",
    "memory": "a = []\nwhile True: a.append(bytearray(10**6))",
    "memory of children": "import os\nfor _ in range(4): os.fork()\na = []\nwhile True: a.append(bytearray(10**6))",
    "disk": "for i in range(10**6): open(f'/tmp/{i}', 'wb').write(b'x' * 10**6)",
    "one file": "f = open('/tmp/a', 'wb')\nwhile True: f.write(b'x' * 10**6)",
    "memory file": "import os\nn = os.memfd_create('a')\nwhile True: os.write(n, b'x' * 10**6)",
    "exit": "import sys\nsys.exit(0)",
    "exit in a call": "def f(x): raise SystemExit",
    "hard exit": "import os\nos._exit(0)",
    "hard exit in a call": "import os\ndef f(x): os._exit(0)",
    "killed by itself": "import os\nos.kill(os.getpid(), 9)",
    "kills everyone": "import os\nos.kill(-1, 9)",
    "kills its parents": "import os\nfor n in range(1, 99):\n    try: os.kill(n, 9)\n    except OSError: pass",
    "abort": "import os\nos.abort()",
    "crash": "import ctypes\nctypes.string_at(0)",
    "result lines": "print('PASS')\nprint('{\"values\": [true, true]}')\nimport os\nos._exit(0)",
    "forged report": FORGE.format(b'{"values": [true, true]}'),
    "forged nesting": FORGE.format(b'{"values": [' + b"[" * 50000),
    "endless output": "while True: print('x' * 10**5)",
    "endless report": """
import os
while True:
    for n in range(3, 9):
        try: os.write(n, b'x' * 10**5)
        except OSError: pass
""",
    "ignores signals": """
import signal
for n in range(1, 65):
    try: signal.signal(n, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True: pass
""",
    "catches all": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "daemon": """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: time.sleep(999)
    os._exit(0)
os._exit(0)
""",
    "closes all": "import os, time\nos.closerange(0, 64)\ntime.sleep(999)",
    "closes all and ends": "import os\nos.closerange(0, 64)",
    "thread for ever": """
import threading, time
threading.Thread(target=time.sleep, args=(999,)).start()
def f(x): return 0
""",
    "patched json": "import json\njson.dumps = lambda *a, **k: '{\"values\": [true, true]}'\ndef f(x): return 0",
    "patched builtins": """
import builtins
builtins.eval = lambda *a: True
builtins.compile = lambda *a: ''
def f(x): return 0
""",
    "patched encoder": """
import sys
m = sys._getframe(2).f_globals
m['encode'] = lambda *a: True
def f(x): return 0
""",
    "odd type": """
class M(type):
    def __instancecheck__(s, o): return True
class X(metaclass=M):
    __class__ = int
    def __eq__(s, o): return True
def f(x): return X()
""",
    "deep": "def f(x):\n    a = 4\n    for _ in range(10**5): a = [a]\n    return a",
    "wide": "def f(x):\n    a = [4]\n    for _ in range(60): a = [a, a]\n    return a",
    "huge number": "def f(x): return 1 << 10**8",
    "endless text": "def f(x): return 'x' * 10**8",
    "not a number": "def f(x): return float('nan')",
    "infinite": "def f(x): return float('inf')",
    "deep source": "x = " + "(" * 9000,
    "no end in repr": "class E(Exception):\n    def __str__(s):\n        while True: pass\ndef f(x): raise E",
    "ptrace": "import ctypes, os, time\nctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0)\ntime.sleep(999)",
    "new namespace": "import ctypes\nassert ctypes.CDLL(None).unshare(0x10000000) == -1\nraise SystemExit",
    "mount": """
import ctypes
assert ctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, 0) == -1
raise SystemExit
""",
}  # fmt: skip
