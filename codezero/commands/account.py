"""Commands of the account and its points: `wallet …`, `leaderboard`, `chain dev`."""

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Generator
from pathlib import Path

from codezero.commands.common import DONE, INTERRUPTED, Command, take_json, take_settings


def add(command: Command) -> None:
    wallet = command("wallet", wallet_show, "the account that registers this node and takes its points")
    wallet_commands = wallet.add_subparsers(metavar="WALLET_COMMAND", required=True)
    address = wallet_commands.add_parser("show", help="print its address")
    make = wallet_commands.add_parser("create", help="make a keystore with a passphrase of your own")
    bring = wallet_commands.add_parser("import", help="make a keystore of a key that you have")
    bring.add_argument("--key-file", type=Path, metavar="FILE", help="64 hex digits; without it the key is asked for")
    for parser, handler in ((address, wallet_show), (make, wallet_create), (bring, wallet_import)):
        parser.set_defaults(handler=handler)
        take_settings(parser)
        take_json(parser)

    board = command("leaderboard", leaderboard, "who earned what, read from the chain")
    take_settings(board)
    board.add_argument("--invitation", type=Path, metavar="FILE", help="of the swarm that FILE invites to")
    take_json(board)

    chain = command("chain", chain_dev, "the chain that counts rewards and votes")
    chain_commands = chain.add_subparsers(metavar="CHAIN_COMMAND", required=True)
    dev = chain_commands.add_parser("dev", help="serve a chain of your own on this machine; nodes that need it find it")
    dev.set_defaults(handler=chain_dev)
    dev.add_argument("--port", type=int, default=0, metavar="PORT", help="default: the last one, or any that is free")
    dev.add_argument("--data", type=Path, default=Path("runs/chain"), metavar="DIR", help="default: runs/chain")
    take_json(dev, "print where it is as one JSON object")


def wallet_show(options: argparse.Namespace) -> int:
    from codezero.settings import compose
    from codezero.wiring.chain import open_wallet, with_login

    config = with_login(compose(options.overrides))
    return _print_wallet(open_wallet(config.chain).address, config.chain.wallet, options)


def wallet_create(options: argparse.Namespace) -> int:
    return _new_wallet(options, None)


def wallet_import(options: argparse.Namespace) -> int:
    from codezero.chain.wallet import read_key

    return _new_wallet(options, read_key(options.key_file))


def _new_wallet(options: argparse.Namespace, key: bytes | None) -> int:
    from codezero.chain.wallet import KeystoreWallet
    from codezero.settings import compose
    from codezero.wiring.chain import passphrase_of

    config = compose(options.overrides)
    wallet = KeystoreWallet.create(Path(config.chain.wallet), passphrase_of(config.chain, new=True), key=key)
    return _print_wallet(wallet.address, config.chain.wallet, options)


def _print_wallet(address: str, path: str, options: argparse.Namespace) -> int:
    print(json.dumps({"address": address, "file": path}) if options.json else f"{address}  {path}")
    return DONE


def leaderboard(options: argparse.Namespace) -> int:
    from codezero.settings import compose

    overrides = list(options.overrides)
    config = compose(overrides)
    from codezero.wiring.leaderboard import print_board, read_board

    if options.invitation:
        from codezero.chain.invitation import read_invitation
        from codezero.wiring.founding import chain_overrides

        config = compose([*chain_overrides(read_invitation(options.invitation), config), *overrides])
    with _progress("reading the chain") as update:
        board = read_board(config.chain, Path(config.run.directory), update)
    if options.json:
        import msgspec

        print(msgspec.json.encode(board).decode())
    else:
        print_board(board)
    return DONE


@contextlib.contextmanager
def _progress(doing: str) -> Generator[Callable[[float], None]]:
    """A bar on a terminal; nothing elsewhere."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(doing, total=1.0)
        yield lambda share: progress.update(task, completed=share)


def chain_dev(options: argparse.Namespace) -> int:
    import signal

    from codezero.chain.devchain_server import run_devchain

    ended = run_devchain(options.data, port=options.port, as_json=options.json)
    return INTERRUPTED if ended == signal.SIGINT else DONE
