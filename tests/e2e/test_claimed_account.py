"""Commands of a node that its owner has claimed know its account, and make no other one in its place."""

import time
from pathlib import Path

import pytest

from codezero.chain.build import LoginChain
from codezero.chain.wallet import KeystoreWallet
from codezero.cli import main
from codezero.config import ChainConfig, LoginConfig, NodeConfig
from codezero.fitting import with_login
from codezero.login.vault import Folder, Passphrase, Scrypt, Vault


@pytest.fixture
def settings(tmp_path: Path) -> list[str]:
    places = {"login.directory": "login", "chain.wallet": "wallet.json", "chain.directory": "chain"}
    files = places | {"swarm.identity": "swarm.pem"}
    return [*(f"{key}={tmp_path / name}" for key, name in files.items()), "swarm.port=38331"]


@pytest.fixture
def account(tmp_path: Path) -> str:
    vault = Vault(Folder(tmp_path / "login"), 30, time.time)
    return vault.claim(bytes(range(1, 33)), Passphrase(Scrypt(bytes(32))), bytes(32)).account


def test_wallet_show_names_the_claimed_account(
    tmp_path: Path, settings: list[str], account: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["wallet", "show", *settings]) == 0
    assert account in capsys.readouterr().out and not (tmp_path / "wallet.json").exists()


def test_a_throw_away_account_made_by_accident_does_not_go_before_the_owners(tmp_path: Path, account: str) -> None:
    wallet, login = tmp_path / "wallet.json", LoginConfig(directory=str(tmp_path / "login"))
    KeystoreWallet.ephemeral(wallet)
    chain = ChainConfig(kind="embedded", wallet=str(wallet))
    signed = with_login(NodeConfig(chain=chain, login=login)).chain
    assert isinstance(signed, LoginChain) and signed.account == account
    (tmp_path / "wallet.json.passphrase").unlink()  # now it is a keystore of one's own
    assert with_login(NodeConfig(chain=chain, login=login)).chain == chain


def test_founding_a_swarm_asks_for_a_keystore(
    tmp_path: Path, settings: list[str], account: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["swarm", "create", "--no-run", "--out", str(tmp_path / "swarm.toml"), *settings]) == 2
    assert "chain.wallet=FILE" in capsys.readouterr().err and not (tmp_path / "wallet.json").exists()
