"""The identity file: who may read it, what it proves, and that libp2p's own library agrees."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from hypothesis import given
from hypothesis import strategies as st

from codezero.cli import main
from codezero.errors import IdentityError
from codezero.swarm.identity import Identity, peer_id_of, verify


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("identity") / "swarm.pem"
    Identity.load_or_create(path)
    return path


def write_ed25519(path: Path) -> ed25519.Ed25519PrivateKey:
    key = ed25519.Ed25519PrivateKey.generate()
    path.write_bytes(b"\x08\x01\x12\x40" + key.private_bytes_raw() + key.public_key().public_bytes_raw())
    path.chmod(0o600)
    return key


def test_the_same_file_is_the_same_peer(path: Path) -> None:
    assert Identity.load_or_create(path).peer_id == Identity.load(path).peer_id
    assert Identity.load(path).peer_id.startswith("Qm")


def test_only_the_owner_may_read_a_new_file(path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o400
    assert not list(path.parent.glob(".*")), "a temporary copy of the key was left behind"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622])
def test_an_exposed_file_is_refused_with_the_remedy(tmp_path: Path, path: Path, mode: int) -> None:
    copy = tmp_path / "swarm.pem"
    copy.write_bytes(path.read_bytes())
    copy.chmod(mode)
    with pytest.raises(IdentityError, match=f"chmod 600 {copy}"):
        Identity.load_or_create(copy)


def test_a_signature_holds_for_its_message_and_key_only(path: Path, tmp_path: Path) -> None:
    write_ed25519(tmp_path / "other.pem")
    mine, other = Identity.load(path), Identity.load(tmp_path / "other.pem")
    for signer, stranger in ((mine, other), (other, mine)):
        signature = signer.sign(b"message")
        assert verify(signer.public_key_bytes, signature, b"message")
        assert not verify(signer.public_key_bytes, signature, b"massage")
        assert not verify(stranger.public_key_bytes, signature, b"message")
        assert not verify(signer.public_key_bytes, signature[:-1], b"message")


def test_ed25519_files_are_accepted_and_name_the_key_itself(tmp_path: Path) -> None:
    key = write_ed25519(tmp_path / "swarm.pem")
    identity = Identity.load(tmp_path / "swarm.pem")
    assert identity.peer_id.startswith("12D3Koo")
    assert identity.public_key_bytes.endswith(key.public_key().public_bytes_raw())


def test_a_damaged_file_is_refused_and_kept(tmp_path: Path, path: Path) -> None:
    damaged = tmp_path / "swarm.pem"
    for content in (b"", b"\x08", path.read_bytes()[:-1], path.read_bytes() + b"x", os.urandom(9000)):
        damaged.write_bytes(content)
        damaged.chmod(0o600)
        with pytest.raises(IdentityError, match="not an identity file"):
            Identity.load_or_create(damaged)
        assert damaged.read_bytes() == content


def test_a_missing_directory_or_a_fifo_is_an_identity_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    with pytest.raises(IdentityError, match="No such file"):
        Identity.load_or_create(tmp_path / "absent" / "swarm.pem")
    with pytest.raises(IdentityError, match="not a regular file"):
        Identity.load_or_create(tmp_path / "fifo")


def test_the_key_shows_in_no_representation(path: Path) -> None:
    identity = Identity.load(path)
    assert repr(identity) == f"Identity({identity.peer_id})"


@given(st.binary(max_size=400), st.binary(max_size=600))
def test_foreign_bytes_are_never_a_valid_signature_nor_an_error(key: bytes, signature: bytes) -> None:
    assert verify(key, signature, b"message") is False


@given(data=st.data())
def test_a_mutated_public_key_is_another_peer(data: st.DataObject) -> None:
    raw = bytearray(b"\x08\x01\x12\x20" + bytes(range(32)))
    before = peer_id_of(bytes(raw))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    assert peer_id_of(bytes(raw)) != before


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_peer_to_peer_library_reads_the_same_peer_id(path: Path) -> None:
    from hivemind.p2p import PeerID
    from hivemind.proto import crypto_pb2

    raw = path.read_bytes()
    assert PeerID.from_identity(raw).to_base58() == Identity.load(path).peer_id
    message = crypto_pb2.PrivateKey.FromString(raw)
    assert message.SerializeToString() == raw
    assert serialization.load_der_private_key(message.data, password=None)


def test_showing_an_identity_loads_no_heavy_library() -> None:
    code = "import sys, codezero.swarm.identity; print({'torch', 'hivemind', 'google.protobuf'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_an_exported_identity_is_the_same_peer_and_private(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.pem"
    assert Identity.copy(path, copy).peer_id == Identity.load(copy).peer_id == Identity.load(path).peer_id
    assert copy.stat().st_mode & 0o777 == 0o400


def test_an_identity_is_never_overwritten(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    before = Identity.load_or_create(other).peer_id
    with pytest.raises(IdentityError, match="never overwritten"):
        Identity.copy(path, other)
    assert Identity.load(other).peer_id == before


def test_the_commands_show_export_and_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here, there, back = (tmp_path / name for name in ("swarm.pem", "safe.pem", "back.pem"))
    peer = Identity.load_or_create(here).peer_id
    assert main(["identity", "show", "--json", f"swarm.identity={here}"]) == 0
    assert json.loads(capsys.readouterr().out)["peer_id"] == peer
    assert main(["identity", "export", str(there), f"swarm.identity={here}"]) == 0
    assert main(["identity", "import", str(there), f"swarm.identity={back}"]) == 0
    assert capsys.readouterr().out.count(peer) == 2
    assert main(["identity", "import", str(there), f"swarm.identity={here}"]) == 2
    assert "never overwritten" in capsys.readouterr().err
    assert Identity.load(back).peer_id == peer
