"""A swarm that is founded has an invitation, and whoever joins gets exactly the swarm that it names."""

import contextlib
from pathlib import Path
from typing import cast

import msgspec
import pytest
from builders.chain import Swarm
from fakes.chaos_proxy import ChaosProxy

from codezero.chain.build import read_only
from codezero.chain.invitation import Invitation, encode_code, read_invitation, signed, write_invitation
from codezero.chain.provider import ChainClient
from codezero.chain.wallet import KeystoreWallet
from codezero.config import PLUGIN_KEYS, SOURCE_KEYS, NodeConfig, plugins_of
from codezero.errors import ChainError, ConfigError, InviteError, UnreachableError
from codezero.ops import founding
from codezero.ops.founding import create_swarm, joined
from codezero.settings import compose, quoted
from codezero.swarm.build import visitor

PEER = "Qm" + "a" * 44


def settings(swarm: Swarm, folder: Path, *more: str) -> NodeConfig:
    folder.mkdir(exist_ok=True)
    fixed = [f"swarm.identity={quoted(folder / 'swarm.pem')}", f"chain.wallet={quoted(folder / 'wallet.json')}"]
    chain = ["chain.kind=rpc", f"chain.rpc_urls=[{quoted(swarm.url)}]", f"chain.chain_id={swarm.chain_id}"]
    return compose(["network=peer", *fixed, *chain, "swarm.port=38331", *more])


@pytest.fixture(scope="module")
def invitation(swarm: Swarm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("founder")
    with contextlib.ExitStack() as stack:
        create_swarm(settings(swarm, folder), folder / "swarm.toml", stack)
    return folder / "swarm.toml"


def test_in_a_closed_network_the_founder_is_found_at_its_interfaces(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = compose(["network=peer", "swarm.port=38331", "swarm.host=0.0.0.0"])
    monkeypatch.setattr(founding, "outward_address", lambda _: None)
    monkeypatch.setattr(founding, "own_addresses", lambda _: ["10.1.2.3", "10.9.8.7"])
    assert founding._own_addresses(config, PEER) == [
        f"/ip4/{address}/tcp/38331/p2p/{PEER}" for address in ("10.1.2.3", "10.9.8.7")
    ]
    assert "no default route" in capsys.readouterr().out
    monkeypatch.setattr(founding, "own_addresses", lambda _: [])
    with pytest.raises(ConfigError, match=r"swarm\.announce"):
        founding._own_addresses(config, PEER)


def test_an_address_with_a_key_stays_with_its_owner(
    swarm: Swarm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key, plain = "0123456789abcdef", "https://rpc.example.org"
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(ChaosProxy(swarm.url, drop=0, delay=0, lie=0)).url
        urls = [f"{own}/v3/{key}", f"https://keyed.example.org?k={key}", f"{plain}/"]
        founder = settings(swarm, tmp_path / "founder", f"chain.rpc_urls=[{','.join(map(quoted, urls))}]")
        create_swarm(founder, tmp_path / "swarm.toml", stack)
    assert read_invitation(tmp_path / "swarm.toml").chain.rpc == [own, plain]
    shown = capsys.readouterr().out
    assert f"the path of {own}, https://keyed.example.org may hold a key" in shown
    assert key not in (tmp_path / "swarm.toml").read_text() + shown
    for word in ("/a", "?a=b", "/#a", "//a/"):
        assert founding._public(ChainClient([f"https://rpc.example.org{word}"], 1)) == []


def test_where_the_invitation_names_no_address_every_node_names_its_own(
    swarm: Swarm, invitation: Path, tmp_path: Path
) -> None:
    bare = again(invitation, tmp_path, rpc=[])
    stranger = compose(["network=peer", f"swarm.identity={quoted(tmp_path / 'new.pem')}"])
    with pytest.raises(ConfigError, match=rf"no address of chain {swarm.chain_id}; name one: chain\.rpc_urls"):
        joined(str(bare), stranger)
    for chain_id in (0, swarm.chain_id):
        config = settings(swarm, tmp_path / "joiner", f"chain.chain_id={chain_id}")
        assert compose(joined(str(bare), config)).chain.rpc_urls == [swarm.url]


def test_who_joins_looks_at_no_block_before_the_contracts(swarm: Swarm, invitation: Path, tmp_path: Path) -> None:
    block = read_invitation(invitation).chain.block
    joiner = compose(joined(str(invitation), settings(swarm, tmp_path / "joiner"))).chain
    assert joiner.contract_block == block > 0
    assert swarm.client.eth.get_code(joiner.contract) and not swarm.client.eth.get_code(joiner.contract, block)  # pyright: ignore[reportArgumentType]
    with contextlib.ExitStack() as stack:
        reader = read_only(joiner, stack, visitor)
        assert [event for page in reader.history(0, ["BootnodesAdded"]) for event in page.events]
    old = read_invitation(again(invitation, tmp_path, block=0))  # of an earlier version
    assert "block" not in (tmp_path / "swarm.toml").read_text()
    assert "chain.contract_block=0" in founding.chain_overrides(old, settings(swarm, tmp_path / "joiner"))


def test_wallet_chain_and_contract_come_before_the_judges_weights(
    swarm: Swarm, invitation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judge_of(_: object) -> None:
        raise AssertionError("minutes")

    monkeypatch.setattr(founding, "judge_of", judge_of)
    monkeypatch.setattr("codezero.chain.build.FILLING_SECONDS", 0.1)
    (tmp_path / "no.json").write_text("{}")
    (tmp_path / "no.json").chmod(0o600)
    (tmp_path / "no.json.passphrase").write_text("x")
    (tmp_path / "no.json.passphrase").chmod(0o600)
    for word, error in (
        (f"chain.wallet={quoted(tmp_path / 'no.json')}", "is no keystore"),
        ("chain.chain_id=5", "serves chain"),
        (f"chain.contract='{swarm.contract}'", "does not belong"),
    ):
        with contextlib.ExitStack() as stack, pytest.raises((ConfigError, ChainError), match=error):
            create_swarm(settings(swarm, tmp_path / "founder", word), tmp_path / "out.toml", stack)
    foreign = again(invitation, tmp_path, contract=swarm.contract)
    with pytest.raises(InviteError, match="does not belong"):
        joined(str(foreign), settings(swarm, tmp_path / "joiner"))


def test_a_code_gets_the_founders_invitation_once_and_keeps_it(
    swarm: Swarm, invitation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, bytes]] = []

    def ask(address: str, body: bytes, _: float) -> bytes:
        asked.append((address, body))
        if len(asked) == 1:
            raise UnreachableError("it is not up yet")
        return invitation.read_bytes()

    monkeypatch.setattr(founding, "visitor", lambda _: ask)
    config = settings(swarm, tmp_path / "joiner", f"run.directory={quoted(tmp_path / 'runs')}")
    known = read_invitation(invitation)
    overrides = [joined(encode_code(known), config) for _ in range(2)]
    assert asked == [(known.network.bootnodes[0], b"")] * 2
    assert overrides[0] == overrides[1] == joined(str(invitation), config)
    (kept,) = (tmp_path / "runs" / "invitations").iterdir()
    assert kept.read_bytes() == invitation.read_bytes() and kept.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    "sent, line",
    [
        (b"junk = [", "what the founder's node sent is no invitation"),
        (b"#" * 65_537, "is no invitation: more than 65536 bytes"),
        (b"\xff\xfe", "is no invitation"),
        ("changed", "was changed after"),
        ("another", "has another invitation than the code names"),
        (None, "did not answer within 0.5 s.* it is too slow"),
    ],
)
def test_a_founder_who_gives_anything_else_is_not_believed(
    swarm: Swarm, invitation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: object, line: str
) -> None:
    def ask(*_: object) -> bytes:
        if sent is None:
            raise UnreachableError("it is too slow")
        if sent == "changed":
            return invitation.read_bytes().replace(b"round_seconds = 60.0", b"round_seconds = 61.0")
        return again(invitation, tmp_path, rpc=[]).read_bytes() if sent == "another" else cast(bytes, sent)

    monkeypatch.setattr(founding, "visitor", lambda _: ask)
    monkeypatch.setattr(founding, "PULL_SECONDS", 0.5)
    config = settings(swarm, tmp_path / "joiner", f"run.directory={quoted(tmp_path / 'runs')}")
    with pytest.raises(InviteError, match=line):
        joined(encode_code(read_invitation(invitation)), config)
    assert not list(tmp_path.glob("runs/*/*"))


def test_a_chain_on_the_founders_loopback_is_asked_through_his_node(
    swarm: Swarm, invitation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = read_invitation(invitation).network
    own = settings(swarm, invitation.parent)
    assert compose(joined(str(invitation), own)).chain.rpc_urls == [swarm.url]
    assert "codezero swarm join cz1" in capsys.readouterr().out
    assert f"swarm.invitation={quoted(str(invitation))}" in joined(str(invitation), own)
    stranger = compose(["network=peer", f"swarm.identity={quoted(tmp_path / 'new.pem')}"])
    urls = compose(founding.chain_overrides(read_invitation(invitation), stranger)).chain.rpc_urls
    assert urls == network.bootnodes and network.bootnodes[0].startswith("/ip4/127.0.0.1/tcp/38331/p2p/")


def test_neither_a_file_nor_a_code_is_one_line(swarm: Swarm, tmp_path: Path) -> None:
    for place in ("nothing", "cz1" + 400 * "x", "a" * 5000):
        with pytest.raises(InviteError, match="neither a file here nor a whole code"):
            joined(place, settings(swarm, tmp_path / "joiner"))
    with pytest.raises(ConfigError, match=r"swarm\.toml: No such file"):
        joined(str(tmp_path / "swarm.toml"), settings(swarm, tmp_path / "joiner"))


def again(invitation: Path, folder: Path, **changes: object) -> Path:
    """The founder's invitation with another chain."""
    wallet = KeystoreWallet.ephemeral(invitation.with_name("wallet.json"))
    old: Invitation = read_invitation(invitation)
    chain = msgspec.structs.replace(old.chain, **changes)
    write_invitation(folder / "swarm.toml", signed(msgspec.structs.replace(old, chain=chain), wallet.sign_message))
    return folder / "swarm.toml"


def test_an_invitation_names_no_code(swarm: Swarm, invitation: Path, tmp_path: Path) -> None:
    """A founder who tries gets a model's name in, which nothing loads as code."""
    old = read_invitation(invitation)
    judge = msgspec.structs.replace(old.judge, model="evil.py:Judge", digest="")
    wallet = KeystoreWallet.ephemeral(invitation.with_name("wallet.json"))
    write_invitation(tmp_path / "evil.toml", signed(msgspec.structs.replace(old, judge=judge), wallet.sign_message))
    own = settings(swarm, tmp_path / "joiner", "reward.function=mine.py:f")
    overrides = joined(str(tmp_path / "evil.toml"), own)
    assert not {word.partition("=")[0] for word in overrides} & {*PLUGIN_KEYS, *SOURCE_KEYS, "evaluator.kind"}
    config = compose(overrides)
    assert (config.evaluator.kind, config.evaluator.model) == ("local", "evil.py:Judge")
    assert not list(plugins_of(config))


def test_an_invitation_names_the_environment_and_refuses_another(
    swarm: Swarm, invitation: Path, tmp_path: Path
) -> None:
    own = "environment=builders.environments:Sums"
    with pytest.raises(InviteError, match="learns the environment code"):
        joined(str(invitation), settings(swarm, tmp_path / "other", own))
    out = tmp_path / "sums.toml"
    with contextlib.ExitStack() as stack:
        create_swarm(settings(swarm, tmp_path / "founder", own), out, stack)
    network = read_invitation(out).network
    assert (network.environment, network.protocol, len(network.digest)) == ("sums", 2, 64)
    joiner = settings(swarm, tmp_path / "joiner", own)
    assert "environment" not in invitation.read_text() + " ".join(joined(str(out), joiner))
    for other in ("environment=code", "environment={_target_: builders.environments.Sums, version: '2'}"):
        with pytest.raises(InviteError, match="learns the environment sums"):
            joined(str(out), settings(swarm, tmp_path / "other", other))


def test_whoever_judges_with_code_of_his_own_invites_nobody_to_it(swarm: Swarm, tmp_path: Path) -> None:
    config = settings(swarm, tmp_path / "own", "evaluator.kind=custom", "evaluator.object=mine.py:Judge")
    with contextlib.ExitStack() as stack, pytest.raises(ConfigError, match="an invitation names no code"):
        create_swarm(config, tmp_path / "out.toml", stack)
