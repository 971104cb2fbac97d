"""Whatever interrupts a claim, the node's key is never lost and has one owner."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from builders.login import Clock, ThrowAway

from codezero.errors import HttpRefusal
from codezero.login.login import Login
from codezero.login.sessions import MAX_TICKETS, Tickets
from codezero.login.vault import Passphrase, Scrypt

OPENER = bytes(range(32))
PROOF = Passphrase(Scrypt(bytes(32)))

KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from builders.login import ThrowAway
from codezero.login.login import Login
from unit.login.test_login import OPENER, PROOF

class Killed(ThrowAway):
    def adopted(self):
        os.kill(os.getpid(), signal.SIGKILL)

folder = Path(sys.argv[1])
login = Login(folder / "login", announce=print, accounts=Killed(folder / "wallet.json"))
asyncio.run(login.claim(PROOF, OPENER))
"""


def new_login(folder: Path) -> Login:
    return Login(folder / "login", announce=lambda _: None, accounts=ThrowAway(folder / "wallet.json"))


def test_a_kill_before_the_plain_passphrase_is_forgotten_loses_nothing(tmp_path: Path) -> None:
    before = ThrowAway(tmp_path / "wallet.json")
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert ThrowAway(tmp_path / "wallet.json").address == before.address and before.passphrase.exists()
    login = new_login(tmp_path)
    assert login.vault.signer() == before.address
    asyncio.run(login.enter(login.owner(Passphrase)[0], OPENER, "wrong"))
    assert not before.passphrase.exists() and login.vault.signer() == before.address


def test_of_two_claims_at_once_one_wins(tmp_path: Path) -> None:
    login = new_login(tmp_path)

    async def both() -> list[str | BaseException]:
        return await asyncio.gather(
            login.claim(PROOF, OPENER), login.claim(PROOF, OPENER[::-1]), return_exceptions=True
        )

    ended = asyncio.run(both())
    refused = [one for one in ended if isinstance(one, HttpRefusal)]
    assert len(refused) == 1 and refused[0].status == 409
    winner = OPENER if isinstance(ended[0], str) else OPENER[::-1]
    assert login.owner(Passphrase)[0].open(winner) == login.vault.key()


def test_what_an_earlier_owner_left_opens_nothing_for_him(tmp_path: Path) -> None:
    login = new_login(tmp_path)
    old = asyncio.run(login.claim(PROOF, OPENER))
    (tmp_path / "login" / "owner.json").unlink()
    with pytest.raises(HttpRefusal, match="locked"):
        login.vault.key()
    asyncio.run(login.claim(PROOF, OPENER[::-1]))
    assert login.sessions.expires(old) is None


def test_the_cipher_text_belongs_to_its_account_and_method(tmp_path: Path) -> None:
    login = new_login(tmp_path)
    asyncio.run(login.claim(PROOF, OPENER))
    file = tmp_path / "login" / "owner.json"
    account = login.owner(Passphrase)[0].account
    file.write_bytes(file.read_bytes().replace(account.encode(), b"0x" + b"11" * 20))
    with pytest.raises(HttpRefusal, match="wrong"):
        asyncio.run(login.enter(login.owner(Passphrase)[0], OPENER, "wrong"))


def test_tickets_are_bounded_and_the_oldest_goes_first() -> None:
    tickets: Tickets[int] = Tickets(Clock())
    given = [tickets.give(number) for number in range(MAX_TICKETS + 1)]
    assert tickets.take(given[-1]) == MAX_TICKETS and tickets.take(given[1]) == 1
    with pytest.raises(HttpRefusal):
        tickets.take(given[0])
