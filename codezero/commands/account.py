"""Commands of who a node is and what it earns: `wallet …`, `identity …`, `leaderboard`, `chain dev`."""

import argparse
import sys
from pathlib import Path

from codezero.commands.common import DONE, INTERRUPTED, Commands, answer, composed, value
from codezero.errors import ConfigError


def add(commands: Commands) -> None:
    wallet = commands.group("wallet", "the account that registers this node and takes its points")
    wallet.add("show", wallet_show, "print its address")
    wallet.add("create", wallet_create, "make a keystore with a passphrase of your own")
    key = value(Path, "FILE", "64 hex digits; without it the key is asked for")
    wallet.add("import", wallet_import, "make a keystore of a key that you have", {"--key-file": key})
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
    identity.add("show", identity_show, "print the name and peer id of swarm.pem")
    identity.add("export", identity_export, "copy swarm.pem to FILE, to keep or to move this node", file)
    identity.add("import", identity_import, "make FILE the identity of this node, if it has none yet", file)


def wallet_show(options: argparse.Namespace) -> int:
    from codezero.wiring.chain import open_wallet, with_login

    chain = with_login(composed(options)).chain
    return _print_account(options, open_wallet(chain).address, chain.wallet)


def wallet_create(options: argparse.Namespace, key: bytes | None = None) -> int:
    from codezero.chain.wallet import KeystoreWallet
    from codezero.wiring.chain import passphrase_of

    chain = composed(options).chain
    wallet = KeystoreWallet.create(Path(chain.wallet), passphrase_of(chain, new=True), key=key)
    return _print_account(options, wallet.address, chain.wallet)


def wallet_import(options: argparse.Namespace) -> int:
    from codezero.chain.wallet import read_key

    return wallet_create(options, read_key(options.key_file))


def _print_account(options: argparse.Namespace, address: str, file: str) -> int:
    return answer(options, {"address": address, "file": file}, f"{address}  {file}")


def identity_show(options: argparse.Namespace) -> int:
    from codezero.swarm.identity import Identity

    path = Path(composed(options).swarm.identity)
    return _print_identity(options, Identity.load(path).peer_id, path)


def identity_export(options: argparse.Namespace) -> int:
    return _copy_identity(options, Path(composed(options).swarm.identity), options.file)


def identity_import(options: argparse.Namespace) -> int:
    return _copy_identity(options, options.file, Path(composed(options).swarm.identity))


def _copy_identity(options: argparse.Namespace, source: Path, to: Path) -> int:
    from codezero.swarm.identity import Identity

    return _print_identity(options, Identity.copy(source, to).peer_id, to)


def _print_identity(options: argparse.Namespace, peer_id: str, path: Path) -> int:
    from codezero.monitor.text import readable_name

    name = readable_name(peer_id)
    return answer(options, {"peer_id": peer_id, "name": name, "file": str(path)}, f"{name}  {peer_id}  {path}")


def leaderboard(options: argparse.Namespace) -> int:
    config = composed(options)
    from codezero.wiring.leaderboard import print_board, read_board

    if options.invitation:
        from codezero.chain.invitation import read_invitation
        from codezero.wiring.founding import chain_overrides

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

    return INTERRUPTED if serve(options.data, announce, port=options.port) == signal.SIGINT else DONE
