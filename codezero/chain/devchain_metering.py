"""Seconds of CPU for what strangers have the embedded chain run, by whatever instruction or precompile they spend them.

Gas does not bound them: 30 million gas are seconds of plain code and minutes of pairings, in Python. A Python call of a
precompile looks at the clock; the two in C that do not are bounded otherwise.
"""

import functools
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, ClassVar

from eth.abc import ComputationAPI, MessageAPI
from eth.exceptions import VMError
from eth.precompiles import point_evaluation
from eth.precompiles.modexp import extract_lengths
from eth.vm.code_stream import CodeStream
from eth.vm.forks.prague.computation import PragueComputation

from codezero.errors import ChainError

RUN_SECONDS = 5.0
"""The longest that one call, estimate or transaction may run: twenty times the largest contract's deployment."""
CLOCK_EVERY = 1024
"""Instructions between two looks at the clock."""
POWER, MOST_NUMBER = (5).to_bytes(20), 1024
"""Where modular powers are computed, and the bytes of each number, as from Osaka on (EIP-7823): at most 1 s, then."""
COMPUTING = "eth.", "py_ecc."
"""Modules of precompiles."""
REFUSED = -32000
"""JSON-RPC's code for a transaction or call that cannot be."""

# py-evm reads the trusted setup anew for each proof, which takes C code 2 s.
point_evaluation.load_trusted_setup = functools.cache(point_evaluation.load_trusted_setup)  # type: ignore[attr-defined]


class RpcRefusal(ChainError):
    """A JSON-RPC error. `data` is a 0x string, never an object: web3 reads custom errors from it."""

    def __init__(self, code: int, message: str, data: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


class OutOfTime(RpcRefusal):
    """Not a VMError, which py-evm would swallow."""

    def __init__(self) -> None:
        super().__init__(REFUSED, "execution aborted (timeout): it needs more time than this chain gives to one call")


def check_time(deadline: float) -> None:
    """deadline: by the calling thread's CPU clock. Raises OutOfTime."""
    if time.thread_time() > deadline:
        raise OutOfTime


class TimedCode(CodeStream):
    """Bytecode that is refused after a deadline."""

    def __init__(self, code: bytes, deadline: float) -> None:
        super().__init__(code)
        self._deadline = deadline

    def __iter__(self) -> Iterator[int]:
        for number, opcode in enumerate(super().__iter__()):
            if number % CLOCK_EVERY == 0:
                check_time(self._deadline)
            yield opcode


def timed(at: bytes, precompile: Callable[[ComputationAPI], ComputationAPI]) -> Callable[[Any], ComputationAPI]:
    """The precompile at an address. Raises OutOfTime at its first call after the deadline, and VMError."""

    def run(computation: Any) -> ComputationAPI:
        if at == POWER and max(extract_lengths(computation.msg.data_as_bytes)) > MOST_NUMBER:
            raise VMError(f"a modular power of numbers above {MOST_NUMBER} bytes")

        def look(frame: FrameType, event: str, _: object) -> None:
            # not in what the collector calls: raised there it would be lost, and the profile ends with it
            if event == "call" and frame.f_globals.get("__name__", "").startswith(COMPUTING):
                check_time(computation.state.deadline)

        before = sys.getprofile()
        sys.setprofile(look)
        try:
            return precompile(computation)
        finally:
            sys.setprofile(before)

    return run


class TimedComputation(PragueComputation):
    """Prague's rules, within the time that the state allows."""

    _precompiles: ClassVar = {at: timed(at, run) for at, run in PragueComputation.get_precompiles().items()}

    def __init__(self, state: Any, message: MessageAPI, transaction_context: Any) -> None:
        check_time(state.deadline)
        super().__init__(state, message, transaction_context)
        self.code = TimedCode(message.code, state.deadline)
