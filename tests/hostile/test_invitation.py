"""An invitation steals nothing: what a founder, a contract or a file says is text, and never a template.

Every file is signed by its founder, as a hostile one's would be."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from builders.chain import endpoint, found
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from codezero.chain.invitation import ChainPart, Invitation, JudgePart, NetworkPart, signed, write_invitation
from codezero.chain.wallet import KeystoreWallet
from codezero.cli import main
from codezero.errors import ConfigError, InviteError
from codezero.ops.founding import joined
from codezero.settings import LOCAL, VARIABLE, compose, quoted

SECRET = "hf_PlantedSecret0123456789"
LEAK = "${oc.env:HF_TOKEN}"
PEER = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"


def hostile(folder: Path, url: str, place: str) -> Path:
    """An invitation that asks for a secret at `place`, with its founder's valid signature."""
    wallet = KeystoreWallet.ephemeral(folder / "founder.json")
    name = f"swarm-{LEAK}" if place == "name" else "swarm"
    dns = f"x.{LEAK}.example" if place == "bootnodes" else "founder.example"
    bare = Invitation(
        version=1,
        founder=wallet.address,
        chain=ChainPart(31337, [f"{url}/{LEAK}/" if place == "rpc" else url], "0x" + 40 * "a", 60.0),
        network=NetworkPart(name, 1, [f"/dns4/{dns}/tcp/38331/p2p/{PEER}"]),
        judge=JudgePart(f"nano{LEAK}" if place == "judge" else "nano", ""),
    )
    complete = msgspec.structs.replace(bare, signature="0x" + wallet.sign_message(bare.message).hex())
    write_invitation(folder / "swarm.toml", complete)
    return folder / "swarm.toml"


@pytest.mark.slow
@pytest.mark.parametrize("place", ["rpc", "bootnodes", "name", "judge"])
def test_a_planted_secret_is_on_no_socket_and_in_no_file(tmp_path: Path, place: str) -> None:
    environment = os.environ | {"HF_TOKEN": SECRET, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    received: list[bytes] = []
    with endpoint(lambda _: None, received) as url:
        words = ["swarm", "join", str(hostile(tmp_path, url, place)), "run.max_minutes=0.1", "login.page=off"]
        command = [sys.executable, "-m", "codezero", *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=300, check=False)
    written = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    seen = [*received, *written, done.stdout, done.stderr]
    assert not any(SECRET.encode() in text for text in seen)
    assert done.returncode != 0 and b"is no invitation" in done.stderr


@pytest.mark.parametrize("text", [LEAK, "$HOME", "a{b}", "back\\slash", "it's", 'quo"te', "`id`"])
def test_a_founder_cannot_even_sign_what_a_resolver_or_a_shell_reads(tmp_path: Path, text: str) -> None:
    wallet = KeystoreWallet.ephemeral(tmp_path / "founder.json")
    chain = ChainPart(31337, ["http://127.0.0.1:8545"], "0x" + 40 * "a", 60.0)
    bare = Invitation(1, wallet.address, chain, NetworkPart("swarm", 1, []), JudgePart("nano", ""))
    for part in (
        {"chain": msgspec.structs.replace(chain, rpc=[f"http://founder/{text}"])},
        {"network": NetworkPart("swarm", 1, [f"/dns4/{text}/tcp/1/p2p/{PEER}"])},
        {"judge": JudgePart(f"model{text}", "")},
    ):
        with pytest.raises(InviteError, match="cannot hold this"):
            signed(msgspec.structs.replace(bare, **part), wallet.sign_message)


def test_of_the_contracts_list_only_plain_addresses_are_dialled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    plain = f"/ip4/203.0.113.5/tcp/38331/p2p/{PEER}"
    with found(tmp_path) as swarm:
        swarm.owner.send("addBootnodes", [f"/dns4/{LEAK}/tcp/1/p2p/{PEER}", plain])
        bare = Invitation(
            version=1,
            founder=swarm.owner.account,
            chain=ChainPart(swarm.chain_id, [swarm.url], swarm.contract, 60.0),
            network=NetworkPart("swarm", 1, []),
            judge=JudgePart("nano", ""),
        )
        monkeypatch.setattr("codezero.ops.founding.read_invitation", lambda path: bare)
        settings = compose(["network=peer", f"swarm.identity={quoted(tmp_path / 'swarm.pem')}"])
        assert compose(joined(str(tmp_path / "swarm.toml"), settings)).swarm.bootstrap == [plain]


@pytest.mark.slow
@given(st.lists(st.text().filter(lambda text: text != "???"), min_size=4, max_size=8))
@example([LEAK, "\\" + LEAK, "\\\\" + LEAK, "'${swarm.name}'", "${", "a\\", "\\'", "$${x}", "${a:${b}}"])
@hypothesis_settings(max_examples=40)
def test_any_text_composes_to_itself(texts: list[str]) -> None:
    assert compose([f"swarm.bootstrap=[{','.join(map(quoted, texts))}]"]).swarm.bootstrap == texts


@pytest.mark.parametrize("key", ["swarm.name", "hub.repository", "swarm.announce"])
def test_what_others_see_is_written_out(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    with pytest.raises(ConfigError, match=f"{key} is shown to other people") as refused:
        compose([f"{key}=['{LEAK}']" if key == "swarm.announce" else f"{key}='{LEAK}'"])
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "where"),
    [
        *((key, "hub.repository=me/mine") for key in ("model.solver", "evaluator.model", "reward.function")),
        *((key, "monitor.wandb=mine") for key in ("model.solver", "evaluator.model", "run.name")),
    ],
)
def test_what_a_pushed_model_and_a_shown_run_say_is_written_out(
    key: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "mine")
    compose([f"{key}='{LEAK}'"])
    with pytest.raises(ConfigError, match=f"{key} is shown to other people"):
        compose([f"{key}='{LEAK}'", where])


def test_a_founder_does_not_publish_the_key_of_a_provider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    monkeypatch.chdir(tmp_path)
    assert main(["swarm", "create", "--no-run", f"chain.rpc_urls=['https://rpc.example/{LEAK}']"]) == 2
    assert "chain.rpc_urls is shown to other people" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_users_own_settings_may_name_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(VARIABLE)
    LOCAL.parent.mkdir()
    LOCAL.write_text(f"chain:\n  rpc_urls: ['https://rpc.example/{LEAK}']\n")
    assert compose([]).chain.rpc_urls == [f"https://rpc.example/{SECRET}"]
    assert compose([f"evaluator.url='http://judge/{LEAK}'"]).evaluator.url == f"http://judge/{SECRET}"
