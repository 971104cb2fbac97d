"""Anvil, a chain of others: a second backend of the tests. `scripts/install_test_tools.sh` puts it into `.anvil/`."""

import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

BINARY = next((Path(__file__).parents[2] / ".anvil").glob("node_modules/@foundry-rs/anvil-*/bin/anvil"), None)
CHAIN_ID = 31_337_000
_MISSING = pytest.mark.skipif(BINARY is None, reason="no Anvil here: run scripts/install_test_tools.sh")
BACKENDS = ["embedded", pytest.param("anvil", marks=_MISSING)]
ANVIL_LONG = ["embedded", pytest.param("anvil", marks=[_MISSING, pytest.mark.long])]
"""For what takes half a minute on either."""


@contextmanager
def anvil(folder: Path) -> Generator[str]:
    """Its URL on loopback; a block for each transaction. Nothing is kept."""
    assert BINARY is not None
    log = folder / "anvil.log"
    command = [BINARY, "--host", "127.0.0.1", "--port", "0", "--chain-id", str(CHAIN_ID), "--hardfork", "prague"]
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    try:
        while "Listening on " not in (text := log.read_text()):
            assert process.poll() is None, text
            time.sleep(0.02)
        yield f"http://{text.split('Listening on ')[1].split()[0]}"
    finally:
        process.kill()
        process.wait()
