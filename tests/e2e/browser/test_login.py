"""Claiming a node and logging in, in a real browser at the real server: what a person sees and what lies on disk."""

import http.server
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.browsing import authenticator, browser, free_port, needs_browser, served
from builders.servers import running
from playwright.sync_api import Page, expect

from codezero.chain.wallet import KeystoreWallet

pytestmark = [*needs_browser, pytest.mark.slow]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "runs").mkdir()
    return tmp_path


def type_code(page: Page, url: str, code: str) -> None:
    page.goto(f"{url}/#/account")
    page.get_by_label("Code from the terminal").fill(code)


def logged_in_as(page: Page, address: str) -> None:
    expect(page.get_by_role("heading", name="Account")).to_be_visible()
    page.get_by_text(address[:6]).first.wait_for()
    assert address in page.content()


def test_a_passkey_claims_the_node_and_opens_the_same_account_after_a_restart(folder: Path) -> None:
    port, address = free_port(), KeystoreWallet.ephemeral(folder / "wallet.json").address
    with browser(folder / "profile") as context:
        page = context.new_page()
        authenticator(page)
        with served(folder, port) as server:
            type_code(page, server.url, server.code)
            page.get_by_role("button", name="Claim with a passkey").click()
            logged_in_as(page, address)
            assert not (folder / "wallet.json.passphrase").exists(), "the account still opens without its owner"
            assert server.process.stdout and b'"code":""' in server.process.stdout.readline().replace(b" ", b"")
        with served(folder, port) as server:
            assert not server.code, "a node with an owner shows no code"
            page.goto(f"{server.url}/#/account")
            page.reload()
            logged_in_as(page, address)
            page.get_by_role("button", name="Log out and lock").click()
            expect(page.get_by_role("heading", name="Log in")).to_be_visible()
            assert not (folder / "login" / "unlocked.json").exists()
            page.get_by_role("button", name="Log in with your passkey").click()
            page.goto(f"{server.url}/#/account")
            logged_in_as(page, address)


def test_neither_a_wrong_code_nor_a_device_that_verifies_nobody_claims_anything(folder: Path) -> None:
    with browser(folder / "profile") as context, served(folder, free_port()) as server:
        page = context.new_page()
        authenticator(page, verified=False)
        for code in ("0000-0000" if server.code != "0000-0000" else "0000-0001", server.code):
            type_code(page, server.url, code)
            page.get_by_role("button", name="Claim with a passkey").click()
            wrong = "not the code in the terminal" if code != server.code else ""
            expect(page.get_by_role("alert")).to_contain_text(wrong, timeout=90_000)
            assert not (folder / "login" / "owner.json").exists()
            page.reload()


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """Another site on this machine."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<title>elsewhere</title>")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with running(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        yield f"http://127.0.0.1:{server.server_port}"


SEND = """async ([url, type]) => {
  try { return String((await fetch(url + "/api/logout", {method: "POST", mode: type ? "cors" : "no-cors",
    credentials: "include", headers: type ? {"content-type": type} : {}, body: '{"lock":true}'})).status); }
  catch (error) { return "refused by the browser"; }
}"""


def test_a_passphrase_claims_the_node_and_neither_a_wrong_one_nor_another_site_gets_in(
    folder: Path, elsewhere: str
) -> None:
    with browser(folder / "profile") as context, served(folder, free_port()) as server:
        page = context.new_page()
        type_code(page, server.url, server.code)
        page.get_by_label("Passphrase, at least 10 characters").fill("nine lives of a cat")
        page.get_by_label("The same again").fill("nine lives of a cat")
        page.get_by_role("button", name="Claim with a passphrase").click()
        expect(page.get_by_role("heading", name="Account")).to_be_visible()
        other = context.new_page()
        other.goto(elsewhere)
        for content_type in ("application/json", ""):  # asked before, and sent without asking
            assert other.evaluate(SEND, [server.url, content_type]) == "refused by the browser"
        assert (folder / "login" / "unlocked.json").exists()
        by_number = other.goto(f"http://127.0.0.1:{server.port}/api/session")
        assert by_number is not None and by_number.status == 421
        page.get_by_role("button", name="Log out", exact=True).click()
        page.get_by_label("Passphrase").fill("nine lives of a dog")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_contain_text("passphrase")
        page.get_by_label("Passphrase").fill("nine lives of a cat")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", name="Log in")).to_be_hidden()
