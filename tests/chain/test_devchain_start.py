"""The first moments of an embedded chain: questions may come before py-evm is loaded."""

import subprocess
import sys
from pathlib import Path

BESIDE = '''
import sys, threading
from pathlib import Path
from codezero.chain.devchain_rpc import Node
from codezero.chain.devchain_server import Server
from codezero.chain.devchain_store import Store
from codezero.chain.devchain_wire import Call, Trial

half_way, entered = threading.Event(), set()

class Watched:
    """Who loads parts of py-evm; the first is held inside its circle of imports until the other has asked."""

    def find_spec(self, name, path=None, target=None):
        if name.startswith("eth."):
            entered.add(threading.current_thread().name)
        if name == "eth.vm.forks.prague.blocks":
            half_way.set()
            threading.Event().wait(0.5)

sys.meta_path.insert(0, Watched())
directory = Path(sys.argv[1])
node = Node(Store(directory / "chain.db"), 7, "test", directory / "faucet.key")
Server(node).warm_up()
half_way.wait(60)
print(node.call(Trial(Call(to="0x" + "11" * 20))), len(entered))
'''


def test_a_question_that_comes_while_py_evm_is_loaded_waits_and_is_answered(tmp_path: Path) -> None:
    """Two threads in py-evm's circle of imports would now and then end in a deadlock and a chain that is no good."""
    command = [sys.executable, "-W", "ignore", "-c", BESIDE, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, "0x 1\n"), ran.stderr
