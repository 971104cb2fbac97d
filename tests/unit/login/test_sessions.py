"""A claim loses no key and has one owner; a login lasts for its time, and ends when its owner says so."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from builders.login import Clock, Page, ThrowAway, page
from fakes.authenticator import Authenticator

from codezero.errors import HttpRefusal, LoginError
from codezero.login.login import MAX_TICKETS, Login, Tickets, log_out
from codezero.login.vault import Folder, Passphrase, Scrypt

DAY = 86_400


def test_the_cookie_is_out_of_reach_of_scripts_and_of_other_sites(owned: Page) -> None:
    _, *attributes = owned.cookies[-1].split("; ")
    assert sorted(attributes) == ["HttpOnly", f"Max-Age={30 * DAY}", "Path=/", "SameSite=Strict"]


def test_logout_ends_one_session_and_leaves_the_node_signing(owned: Page, key: Authenticator) -> None:
    first = owned.cookie
    owned.log_in_with(key)
    left = owned.post("/api/logout", {"lock": False}).json
    assert not left["logged_in"] and left["unlocked"] and "Max-Age=0" in owned.cookies[-1]
    owned.cookie = first
    assert owned.state()["logged_in"]


def test_a_lock_ends_all_sessions_and_needs_one(owned: Page, key: Authenticator, tmp_path: Path) -> None:
    first = owned.cookie
    owned.cookie = ""
    assert owned.post("/api/logout", {"lock": True}).status == 401 and owned.state()["unlocked"]
    owned.log_in_with(key)
    owned.post("/api/logout", {"lock": True})
    owned.cookie = first
    assert not owned.state()["logged_in"] and not owned.state()["unlocked"]
    assert not (tmp_path / "unlocked.json").exists() and not (tmp_path / "device.key").exists()


def test_another_process_logs_out_while_the_server_runs(owned: Page, tmp_path: Path) -> None:
    assert log_out(tmp_path)
    state = owned.state()
    assert (state["claimed"], state["logged_in"], state["unlocked"]) == (True, False, False)
    assert not log_out(tmp_path)
    assert not log_out(tmp_path / "none") and not (tmp_path / "none").exists()


def test_session_and_key_expire(owned: Page, tmp_path: Path) -> None:
    owned.clock.step = 0.0
    owned.clock.now += 30 * DAY - 1
    assert owned.state()["logged_in"] and owned.state()["unlocked"]
    owned.clock.now += 1
    assert not owned.state()["logged_in"] and not owned.state()["unlocked"]
    assert not (tmp_path / "unlocked.json").exists()


def test_an_expiry_written_later_opens_nothing(owned: Page, tmp_path: Path) -> None:
    unlocked = tmp_path / "unlocked.json"
    unlocked.write_bytes(unlocked.read_bytes().replace(b'"expires":1', b'"expires":2'))
    assert not owned.state()["unlocked"]


@pytest.mark.parametrize("lost", ["device.key", "unlocked.json"])
def test_either_file_alone_opens_nothing(owned: Page, key: Authenticator, tmp_path: Path, lost: str) -> None:
    (tmp_path / lost).unlink()
    assert not owned.state()["unlocked"]
    assert owned.log_in_with(key).json["unlocked"]


def test_sessions_are_bounded_and_the_oldest_ends_first(owned: Page, key: Authenticator) -> None:
    cookies = [owned.cookie]
    for _ in range(32):
        owned.log_in_with(key)
        cookies.append(owned.cookie)
    alive = []
    for owned.cookie in cookies:
        alive.append(owned.state()["logged_in"])
    assert alive == [False] + [True] * 32


@pytest.mark.parametrize("cookie", ["", "x", "\x80", '"', "a" * 5000])
def test_another_cookie_opens_nothing(owned: Page, cookie: str) -> None:
    answer = owned.get("/api/session", Cookie=f"codezero_session={cookie}")
    assert answer.status == 200 and not answer.json["logged_in"] and answer.json["address"] is None


def test_folder_and_files_are_their_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with page(tmp_path / "login") as tab:
            tab.claim_with(Authenticator())
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "login").iterdir()}
    names = {"owner.json", "unlocked.json", "device.key", "sessions.json", "node.token", "login.lock"}
    assert modes == dict.fromkeys(names, 0o600)
    assert stat.S_IMODE((tmp_path / "login").stat().st_mode) == 0o700


def test_an_open_folder_is_closed_and_an_open_file_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with page(tmp_path) as tab:
        assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700
        tab.claim_with(Authenticator())
        (tmp_path / "owner.json").chmod(0o644)
        refused = tab.get("/api/session")
        assert refused.status == 503 and "chmod 600" in refused.error


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b"[" * 5000, b"x" * 70_000, b'{"version":2}'])
def test_a_damaged_file_is_named(owned: Page, tmp_path: Path, content: bytes) -> None:
    for name in ("owner.json", "unlocked.json", "sessions.json"):
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content)
        refused = owned.get("/api/session")
        if (name, content) != ("sessions.json", b"{}"):
            assert refused.status == 503 and str(tmp_path / name) in refused.error
        (tmp_path / name).write_bytes(whole)
    assert owned.state()["logged_in"]


def test_no_file_is_written_over_and_none_left_half(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert folder.create("a", b"1") and not folder.create("a", b"2")
    assert folder.read("a") == b"1" and folder.read("b") is None
    (tmp_path / "c").mkdir()
    with pytest.raises(LoginError, match="cannot be written"):
        folder.write("c", b"3")
    with pytest.raises(LoginError, match="c: Is a directory"):
        folder.read("c")
    os.mkfifo(tmp_path / "d", 0o600)
    with pytest.raises(LoginError, match="not a regular file"):
        folder.read("d")
    (tmp_path / "e").symlink_to(tmp_path / "a")
    with pytest.raises(LoginError, match="is a link"):
        folder.read("e")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "c", "d", "e"]


OPENER = bytes(range(32))
PROOF = Passphrase(Scrypt(bytes(32)))

KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from builders.login import ThrowAway
from codezero.login.login import Login
from unit.login.test_sessions import OPENER, PROOF

class Killed(ThrowAway):
    def adopted(self):
        os.kill(os.getpid(), signal.SIGKILL)

folder = Path(sys.argv[1])
before = Killed(folder / "wallet.json")
login = Login(folder / "login", announce=print, adopt=before.adopt, adopted=before.adopted)
asyncio.run(login.claim(PROOF, OPENER))
"""


def new_login(folder: Path) -> Login:
    before = ThrowAway(folder / "wallet.json")
    return Login(folder / "login", announce=lambda _: None, adopt=before.adopt, adopted=before.adopted)


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
