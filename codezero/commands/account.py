"""Commands of who a node is and what it earns: page, login, `wallet …`, `identity …`, `leaderboard`, `chain dev`."""

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from codezero.commands import common
from codezero.commands.common import DONE, FAILED, LOGIN_PORT, OVERRIDES, Commands, answer, composed, say, value
from codezero.errors import ChainError, ConfigError, LoginError, translated

if TYPE_CHECKING:
    from codezero.login.vault import Folder

POLL_SECONDS = 0.5

LOST = """The account's key lies encrypted in runs/login/, and only your passkey or passphrase opens it. If that
is lost, so is the account with its points. To begin anew as another node, move runs/login/ and swarm.pem away.
"""


def add(commands: Commands) -> None:
    folder = value(str, "[FOLDER] KEY=VALUE", f"a run's folder, for a page about it alone; {OVERRIDES}", nargs="*")
    serve = "look at runs in the browser"
    where = "print where it is as one JSON object a line"
    commands.add("dashboard", dashboard, serve, {"overrides": folder, **LOGIN_PORT}, settings="", json=where)
    minutes = value(float, "MINUTES", "to wait for you (default 10)", default=10.0)
    own = "own this node: wait until you have logged in on the page"
    account = "print the account as one JSON object"
    commands.add("login", login, own, {"--minutes": minutes, **LOGIN_PORT}, json=account, epilog=LOST)
    commands.add("logout", logout, "end every session; nothing is signed until the next login", LOGIN_PORT)
    wallet = commands.group("wallet", "the account that registers this node and takes its points")
    wallet.add("show", wallet_show, "print its address")
    wallet.add("create", wallet_create, "make a keystore with a passphrase of your own")
    key = value(Path, "FILE", "64 hex digits; without it the key is asked for")
    wallet.add("import", wallet_create, "make a keystore of a key that you have", {"--key-file": key})
    invitation = value(Path, "FILE", "of the swarm that FILE invites to")
    commands.add("leaderboard", leaderboard, "who earned what, read from the chain", {"--invitation": invitation})
    chain = commands.group("chain", "the chain that counts rewards and votes")
    port = value(int, "PORT", "default: the last one, or any that is free", default=0)
    data = value(Path, "DIR", "default: runs/chain", default=Path("runs/chain"))
    serve = "serve a chain of your own on this machine; nodes that need it find it"
    where = "print where it is as one JSON object"
    chain.add("dev", chain_dev, serve, {"--port": port, "--data": data}, settings="", json=where)
    identity = commands.group("identity", "who this node is")
    file = {"file": value(Path, "FILE", "whoever can read it can act as this node")}
    identity.add("show", lambda of: _print_identity(of, _pem(of)), "print the name and peer id of swarm.pem")
    export = "copy swarm.pem to FILE, to keep or to move this node"
    identity.add("export", lambda of: _print_identity(of, _pem(of), of.file), export, file)
    bring = "make FILE the identity of this node, if it has none yet"
    identity.add("import", lambda of: _print_identity(of, of.file, _pem(of)), bring, file)


def dashboard(options: argparse.Namespace) -> int:
    """Serve the page until a signal. A node starts this with --json."""
    from codezero.login.page_process import PageReady, invitation

    typed = options.overrides
    folder = Path(typed.pop(0)) if typed and "=" not in typed[0] else None
    config = composed(options)
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"{folder} is no folder of a run; `runs/` has them")
    from codezero.inspection.page import serve_page

    def report(ready: PageReady) -> None:
        answer(options, ready, f"codezero: {invitation(ready)}")

    try:
        serve_page(config, folder, report)
    except LoginError as error:
        if not options.json:
            raise ConfigError(str(error)) from error
        report(PageReady(url="", problem=str(error)))
        return FAILED
    return DONE


def login(options: argparse.Namespace) -> int:
    """Print the account once the node can sign for it; at once where a login still lasts. Raises LoginError when the
    page cannot be served, or nobody has logged in after the minutes."""
    from codezero.login.page_process import PageProcess, PageReady, invitation
    from codezero.login.vault import Folder, Vault

    config, minutes = composed(options), options.minutes
    folder = Folder(Path(config.login.directory))
    vault = Vault(folder, config.login.days, time.time)
    if not (account := vault.signer()):
        with PageProcess(config, options.overrides) as page:
            ready = page.ready()
            if ready.problem:
                raise ConfigError(ready.problem)
            if ready.standby and vault.owner() is None:
                ready = PageReady(url=ready.url, code=_new_code(ready.url, folder))
            say(f"{invitation(ready)}; waiting for that up to {minutes:g} minutes")
            until = time.monotonic() + 60 * minutes
            while not (account := vault.signer()):
                if time.monotonic() >= until:
                    late = f"nobody has logged in within {minutes:g} minutes; open {ready.url} and try again"
                    raise LoginError(late)
                time.sleep(POLL_SECONDS)
    return answer(options, {"address": account}, f"logged in; this node's account is {account}")


def _new_code(url: str, folder: "Folder") -> str:
    """Ask the page's process for a code: the one it began with may have scrolled away. Raises LoginError."""
    import msgspec

    from codezero.chain.bounded_http import post
    from codezero.config import LOGIN_TOKEN
    from codezero.system.files import UNDECODABLE

    bearer = {"Authorization": f"Bearer {(folder.read(LOGIN_TOKEN) or b'').decode('ascii', 'replace').strip()}"}
    with translated(LoginError, f"the page at {url} gives no code", ChainError, *UNDECODABLE, KeyError):
        _, raw = post(f"{url}/api/claim/code", b"{}", 10.0, bearer, 4096)
        return msgspec.json.decode(raw, type=dict[str, str])["code"]


def logout(options: argparse.Namespace) -> int:
    from codezero.login.login import log_out

    was_open = log_out(Path(composed(options).login.directory))
    shown = "logged out; nothing is signed until the next login" if was_open else "nobody was logged in"
    return answer(options, {"was_logged_in": was_open}, shown)


def wallet_show(options: argparse.Namespace) -> int:
    from codezero.chain.build import open_wallet
    from codezero.fitting import with_login

    chain = with_login(composed(options)).chain
    return _print_account(options, open_wallet(chain).address, chain.wallet)


def wallet_create(options: argparse.Namespace) -> int:
    """Make a keystore of a new key, or of the one that `wallet import` reads."""
    from codezero.chain.build import passphrase_of
    from codezero.chain.wallet import KeystoreWallet, read_key

    key = read_key(options.key_file) if "key_file" in options else None
    chain = composed(options).chain
    wallet = KeystoreWallet.create(Path(chain.wallet), passphrase_of(chain, new=True), key=key)
    return _print_account(options, wallet.address, chain.wallet)


def _print_account(options: argparse.Namespace, address: str, file: str) -> int:
    return answer(options, {"address": address, "file": file}, f"{address}  {file}")


def _pem(options: argparse.Namespace) -> Path:
    return Path(composed(options).swarm.identity)


def _print_identity(options: argparse.Namespace, path: Path, to: Path | None = None) -> int:
    """to: where it is copied before."""
    from codezero.monitor.text import readable_name
    from codezero.swarm.identity import Identity

    peer_id = Identity.copy(path, to).peer_id if to else Identity.load(path).peer_id
    name, file = readable_name(peer_id), str(to or path)
    return answer(options, {"peer_id": peer_id, "name": name, "file": file}, f"{name}  {peer_id}  {file}")


def leaderboard(options: argparse.Namespace) -> int:
    config = composed(options)
    from codezero.inspection.leaderboard import print_board, read_board

    if options.invitation:
        from codezero.chain.invitation import read_invitation
        from codezero.ops.founding import chain_overrides

        config = composed(options, *chain_overrides(read_invitation(options.invitation), config))
    from rich.console import Console
    from rich.progress import Progress

    # a bar on a terminal, nothing elsewhere
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("reading the chain", total=1.0)
        folder = Path(config.run.directory)
        board = read_board(config.chain, folder, lambda share: progress.update(task, completed=share))
    return answer(options, board, lambda: print_board(board))


def chain_dev(options: argparse.Namespace) -> int:
    import signal

    from codezero.chain.devchain_process import ChainEndpoint
    from codezero.chain.devchain_server import serve

    if options.data.exists() and not options.data.is_dir():
        raise ConfigError(f"--data={options.data} is no folder; name one, or drop --data")

    def announce(chain: ChainEndpoint) -> None:
        place = {"url": chain.url, "chain_id": chain.chain_id, "data": str(options.data), "pid": chain.pid}
        answer(options, place, f"chain {chain.chain_id} at {chain.url}, kept in {options.data}; Ctrl-C ends it")
        sys.stdout.flush()

    ended = serve(options.data, announce, port=options.port, chain_id=None)
    return common.INTERRUPTED if ended == signal.SIGINT else DONE
