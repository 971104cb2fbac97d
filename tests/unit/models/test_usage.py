"""What a node uses of its machine."""

import time

from codezero.models.hardware import Usage


def test_cpu_is_that_since_the_last_call_and_memory_that_of_now() -> None:
    usage = Usage()
    assert usage()["system/cpu"] is None
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
    row = usage()
    cpu, memory = row["system/cpu"], row["system/memory_bytes"]
    assert isinstance(cpu, float) and cpu > 0.0 and isinstance(memory, int) and memory > 1 << 20
