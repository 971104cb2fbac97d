"""What each command does, once `cli.py` has parsed its arguments. Returns the exit code.

Settings are checked before torch, hivemind or web3 is imported: whatever is heavy is imported inside.
"""

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Generator
from pathlib import Path

from codezero.errors import ConfigError

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


def run(options: argparse.Namespace) -> int:
    from codezero.compose import check_directories, compose
    from codezero.run_folder import open_run_folder

    config = compose(options.overrides)
    check_directories(config)
    folder = open_run_folder(config)
    from codezero.wiring import run_node  # torch, hivemind and TRL load only now

    return INTERRUPTED if run_node(config, folder) else DONE


def swarm_up(options: argparse.Namespace) -> int:
    from codezero.compose import compose

    if not 1 <= options.nodes <= 64:
        raise ConfigError(f"--nodes={options.nodes} is out of bounds; it must be 1 to 64")
    config = compose(["profile=peer", *options.overrides])
    from codezero.fleet import run_fleet

    return run_fleet(config, options.overrides, options.nodes)


def swarm_create(options: argparse.Namespace) -> int:
    from codezero.compose import compose

    config = compose(["profile=peer", *options.overrides])
    from codezero.inviting import create_swarm, summary

    for line in summary(create_swarm(config, options.out), options.out):
        print(line, flush=True)
    options.file = options.out
    return DONE if options.no_run else swarm_join(options)


def swarm_join(options: argparse.Namespace) -> int:
    from codezero.compose import compose

    config = compose(["profile=peer", *options.overrides])
    from codezero.inviting import joined

    options.overrides = [*joined(options.file, config), *options.overrides]
    return run(options)


def status(options: argparse.Namespace) -> int:
    from codezero.compose import compose
    from codezero.status import as_json, newest_run, print_status, read_run

    config = compose(options.overrides)
    told = read_run(newest_run(Path(config.run.directory), config.run.name))
    if options.json:
        print(as_json(told))
    else:
        print_status(told)
    return DONE


def dashboard(options: argparse.Namespace) -> int:
    """Serves the page until it is told to stop. A node starts this with --json."""
    import msgspec

    from codezero.compose import compose
    from codezero.errors import LoginError
    from codezero.page import Ready, invitation

    words = options.overrides
    folder = Path(words.pop(0)) if words and "=" not in words[0] else None
    config = compose(words)
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"{folder} is no folder of a run; `runs/` has them")
    from codezero.wiring_page import serve_page

    def tell(ready: Ready) -> None:
        print(msgspec.json.encode(ready).decode() if options.json else f"codezero: {invitation(ready)}", flush=True)

    try:
        serve_page(config, folder, tell)
    except LoginError as error:
        if not options.json:
            raise
        tell(Ready(url="", problem=str(error)))
        return FAILED
    return DONE


def login(options: argparse.Namespace) -> int:
    from codezero.compose import compose
    from codezero.signing_in import wait_for_login

    config = compose(options.overrides)
    account = wait_for_login(config, options.minutes, _say)
    print(json.dumps({"address": account}) if options.json else f"logged in; this node's account is {account}")
    return DONE


def logout(options: argparse.Namespace) -> int:
    from codezero.compose import compose
    from codezero.login.login import log_out

    config = compose(options.overrides)
    was_open = log_out(Path(config.login.directory))
    if options.json:
        print(json.dumps({"was_logged_in": was_open}))
    else:
        print("logged out; nothing is signed until the next login" if was_open else "nobody was logged in")
    return DONE


def wallet_show(options: argparse.Namespace) -> int:
    from codezero.compose import compose
    from codezero.wiring_chain import open_wallet, with_login

    config = with_login(compose(options.overrides))
    return _tell_wallet(open_wallet(config.chain).address, config.chain.wallet, options)


def wallet_create(options: argparse.Namespace) -> int:
    return _new_wallet(options, None)


def wallet_import(options: argparse.Namespace) -> int:
    from codezero.chain.wallet import key_from_file, key_from_prompt

    return _new_wallet(options, key_from_file(options.key_file) if options.key_file else key_from_prompt())


def _new_wallet(options: argparse.Namespace, key: bytes | None) -> int:
    from codezero.chain.wallet import KeystoreWallet
    from codezero.compose import compose
    from codezero.wiring_chain import passphrase_of

    config = compose(options.overrides)
    made = KeystoreWallet.create(Path(config.chain.wallet), passphrase_of(config.chain, new=True), key=key)
    return _tell_wallet(made.address, config.chain.wallet, options)


def _tell_wallet(address: str, path: str, options: argparse.Namespace) -> int:
    print(json.dumps({"address": address, "file": path}) if options.json else f"{address}  {path}")
    return DONE


def leaderboard(options: argparse.Namespace) -> int:
    from codezero.compose import compose

    overrides = list(options.overrides)
    config = compose(overrides)
    from codezero.leaderboard import print_board, read_board

    if options.invitation:
        from codezero.chain.invite import read_invitation
        from codezero.inviting import chain_overrides

        config = compose([*chain_overrides(read_invitation(options.invitation), config), *overrides])
    with _progress("reading the chain") as tell:
        board = read_board(config.chain, Path(config.run.directory), tell)
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


def swarm_bootnode(options: argparse.Namespace) -> int:
    from codezero.compose import compose

    config = compose(["profile=peer", *options.overrides])
    from codezero.bootnode import run_bootnode

    run_bootnode(config)
    return DONE


def swarm_peers(options: argparse.Namespace) -> int:
    from codezero.compose import compose
    from codezero.peers import newest_status, print_peers

    config = compose(options.overrides)
    status = newest_status(Path(config.run.directory), config.run.name)
    if options.json:
        import msgspec

        print(msgspec.json.encode(status).decode())
    else:
        print_peers(status)
    return DONE


def chain_dev(options: argparse.Namespace) -> int:
    import signal

    from codezero.chain.devchain import run_devchain

    ended = run_devchain(options.data, port=options.port, as_json=options.json)
    return INTERRUPTED if ended == signal.SIGINT else DONE


def sit_exam(options: argparse.Namespace) -> int:
    from codezero.compose import compose

    config = compose(options.overrides)
    from codezero.wiring import examine

    measured = examine(config, _say)
    if options.json:
        print(json.dumps(measured))
    else:
        for name, value in measured.items():
            print(f"{name:28} {value:.4g}" if isinstance(value, float) else f"{name:28} {value}")
    return DONE


def evaluate(options: argparse.Namespace) -> int:
    from codezero.compose import compose

    config = compose(options.overrides)
    from codezero.evaluate import evaluate

    marked = evaluate(config, options.file, audit=options.audit, say=_say)
    if options.json:
        for one, _ in marked:
            print(json.dumps(one.to_json()), flush=True)
        return DONE
    from codezero.monitor.card import print_marked

    print_marked((one.scored, one.executed, known) for one, known in marked)
    return DONE


def bench(options: argparse.Namespace) -> int:
    """Runs the file as a program of its own would be."""
    from codezero.compose import beside_package

    found = {path.stem: path for path in sorted(beside_package("benchmarks").glob("*.py"))}
    if options.name == "list":
        print("\n".join(found))
        return DONE
    if options.name not in found:
        raise ConfigError(f"there is no benchmark {options.name}; choose one of: {', '.join(found)}")
    import runpy

    sys.argv = [str(found[options.name]), *options.rest]
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else FAILED if end.code else DONE
    return DONE


def _say(doing: str) -> None:
    print(f"codezero: {doing} …", file=sys.stderr, flush=True)


def nano_build(options: argparse.Namespace) -> int:
    from codezero.nano import WEIGHTS
    from codezero.nano.build import build

    measured = build(options.out or WEIGHTS, seed=options.seed)
    if options.json:
        print(json.dumps(measured))
    return DONE


def config_show(options: argparse.Namespace) -> int:
    from codezero.compose import compose, to_yaml

    print(to_yaml(compose(options.overrides)), end="")
    return DONE


def identity_show(options: argparse.Namespace) -> int:
    from codezero.swarm.identity import Identity

    path = identity_path(options)
    return _tell_identity(Identity.load(path).peer_id, path, options)


def identity_export(options: argparse.Namespace) -> int:
    from codezero.swarm.identity import Identity

    return _tell_identity(Identity.copy(identity_path(options), options.file).peer_id, options.file, options)


def identity_import(options: argparse.Namespace) -> int:
    from codezero.swarm.identity import Identity

    path = identity_path(options)
    return _tell_identity(Identity.copy(options.file, path).peer_id, path, options)


def identity_path(options: argparse.Namespace) -> Path:
    from codezero.compose import compose

    return Path(compose(options.overrides).swarm.identity)


def _tell_identity(peer_id: str, path: Path, options: argparse.Namespace) -> int:
    from codezero.monitor.names import readable_name

    told = {"peer_id": peer_id, "name": readable_name(peer_id), "file": str(path)}
    print(json.dumps(told) if options.json else f"{told['name']}  {peer_id}  {path}")
    return DONE
