"""No text of anybody else passes a resolver, a template or a shell, or drives a terminal: every field of every record.

The fields are read off the records themselves, so a new one is covered by being there. Hostile texts ask for a secret
of the environment in every way known to us, and carry what moves a cursor, reverses a line or begins a new one.

Does not show: what a browser does with text of its own page (tests/e2e/browser)."""

import ast
import importlib
import json
import logging
import unicodedata
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from builders.data_sets import contests, mbpp
from builders.login import PASSPHRASE, page
from builders.mutating import pack, replaced, unpack
from msgspec import inspect

from codezero.chain.invitation import ChainPart, Invitation, JudgePart, NetworkPart, write_invitation
from codezero.chain.wallet import KeystoreWallet
from codezero.cli import main
from codezero.errors import CodeZeroError
from codezero.models.openai_client import decode
from codezero.monitor.logs import known_secrets, setup_logging
from codezero.ops.founding import joined
from codezero.settings import compose, quoted
from codezero.swarm.wire import WireRefusal, decode_body, decode_market, decode_proposals

PACKAGE = Path(__file__).parents[2] / "codezero"
SECRET = "planted-7c1e4b"  # Neither its variable's name nor its form is one that logs hide
FORGED = "FORGED line"
PIECES = [
    "${oc.env:PLANTED}", "${oc.decode:${oc.env:PLANTED}}", "${env:PLANTED}", "${PLANTED}", "$PLANTED",
    "\\${oc.env:PLANTED}", "\\\\${oc.env:PLANTED}", "$(printenv PLANTED)", "`printenv PLANTED`",
    "';printenv PLANTED;#", "{PLANTED}", "{0.__class__}", "%(PLANTED)s", "%s%n%d", "{{PLANTED}}", "<%= PLANTED %>",
    "~", "'", '"', "\\", "???", "null", "[x]", "a=b", "plain", f"\n{FORGED}", "\r", "\x00", "\x07", "\x1b[2J",
    "\x1b]0;t\x07", "\x85", "\u2028", "\u2029", "\u202e", "\u2066", "\u200b", "\u200f", "\ufeff",
]  # fmt: skip
UNSHOWN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def hostile(random: Random) -> str:
    return "".join(random.choice(PIECES) for _ in range(random.choice((1, 1, 2, 3))))


def check_shown(text: str, where: str) -> None:
    """Of lines printed or logged."""
    assert SECRET not in text, where
    assert not [line for line in text.splitlines() if line.startswith(FORGED)], where
    raw = {hex(ord(character)) for character in text if unicodedata.category(character) in UNSHOWN} - {"0xa", "0x9"}
    assert not raw, (where, raw)


HEAVY = {"models", "solver"}  # Parts whose records load torch; those are the node's own, and the long test has them too


def structs(heavy: bool) -> list[type]:
    """Every record of the package, whoever writes it."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE.parent).with_suffix("").parts
        if "Struct" in path.read_text() and (heavy or name[1] not in HEAVY):
            with warnings.catch_warnings(action="ignore"):
                importlib.import_module(".".join(name))
    pending, known = [msgspec.Struct], dict[type, None]()
    while pending:
        subclasses = [kind for kind in pending.pop().__subclasses__() if kind not in known]
        known |= dict.fromkeys(kind for kind in subclasses if kind.__module__.startswith("codezero."))
        pending += subclasses
    return sorted(known, key=lambda kind: f"{kind.__module__}.{kind.__qualname__}")


def with_text(kind: inspect.Type, text: str) -> Iterator[Any]:
    """Values of a type that hold `text` where it has a string: itself, in lists, as keys and as values."""
    match kind:
        case inspect.StrType() | inspect.AnyType() | inspect.EnumType() | inspect.LiteralType():
            yield text
        case inspect.UnionType(types=types):
            for each in types:
                yield from with_text(each, text)
        case inspect.DictType(key_type=key, value_type=value):
            yield from ({each: None} for each in with_text(key, text))
            yield from ({"key": each} for each in with_text(value, text))
        case inspect.TupleType(item_types=items):
            for at, item in enumerate(items):
                yield from ([None] * at + [each] for each in with_text(item, text))
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item) | inspect.SetType(item_type=item):
            yield from ([each] for each in with_text(item, text))
        case _:
            return


def fields(heavy: bool) -> list[tuple[type, inspect.Field]]:
    pairs = [(kind, field) for kind in structs(heavy) for field in inspect.type_info(kind).fields]  # type: ignore[attr-defined]
    return [(kind, field) for kind, field in pairs if any(with_text(field.type, "x"))]


def read_records(random: Random, count: int) -> Iterator[str]:
    """What decoding says of records with a hostile text in one field, and the texts that it lets through."""
    places = fields(heavy=count > 1000)
    assert len(places) > 200
    for number in range(max(count, len(places))):
        kind, field = places[number % len(places)]
        text = hostile(random)
        for value in with_text(field.type, text):
            try:
                decode(json.dumps({field.encode_name: value, text: 1}).encode(), kind)
            except CodeZeroError as error:
                yield str(error)
        yield text


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a tree has strings."""
    if isinstance(value, str):
        yield path
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from leaves(part, (*path, key))


def read_messages(random: Random, count: int) -> Iterator[str]:
    """What peers send, through the decoders of the wire."""
    vectors = json.loads((PACKAGE.parent / "tests" / "golden" / "wire_vectors.json").read_text())
    decoders: dict[str, Callable[[bytes], Any]] = {
        "body_inflated": decode_body, "proposals_inflated": decode_proposals, "market_inflated": decode_market,
    }  # fmt: skip
    trees = {name: unpack(bytes.fromhex(vectors[name])) for name in decoders}
    places = [(name, path) for name, tree in trees.items() for path in leaves(tree)]
    for number in range(max(count, len(places))):
        name, path = places[number % len(places)]
        text = hostile(random)
        try:
            read = decoders[name](zlib.compress(pack(replaced(trees[name], path, text))))
        except WireRefusal as refusal:
            yield str(refusal)
        else:
            assert SECRET not in repr(read), path
            yield text


def check_logged(texts: Iterator[str], folder: Path) -> None:
    """As the log and the terminal show them; `%s`, `%r` and an exception."""
    logger = logging.getLogger("codezero.hostile")
    before = logging.getLogger().level
    handlers = setup_logging(folder, known_secrets())
    try:
        for text in texts:
            logger.warning("a peer says %s, that is %r", text, text)
        try:
            raise CodeZeroError(hostile(Random(1)))
        except CodeZeroError:
            logger.exception("an error")
    finally:
        for handler in handlers:
            logging.getLogger().removeHandler(handler)
            handler.close()
        logging.getLogger().setLevel(before)
    check_shown("".join(path.read_text() for path in sorted(folder.glob("swarm.log*"))), "log")


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder to work in, with the secret in the environment."""
    monkeypatch.setenv("PLANTED", SECRET)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def attack(folder: Path, count: int, capsys: pytest.CaptureFixture[str]) -> None:
    random = Random(f"strings {count}")
    check_logged((text for read in (read_records, read_messages) for text in read(random, count)), folder / "logs")
    printed = capsys.readouterr()
    check_shown(printed.out + printed.err, "printed beside the log")
    for _ in range(max(1, count // 100)):
        texts = [text for text in (hostile(random) for _ in range(20)) if text != "???"]
        settings = compose([f"swarm.bootstrap=[{','.join(map(quoted, texts))}]"])
        assert settings.swarm.bootstrap == texts


def test_every_field_of_every_record(planted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    attack(planted, 300, capsys)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_field_of_every_record_ten_thousand_times(planted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    attack(planted, 5000, capsys)


ROWS = [
    mbpp(1), contests(1), {"question": "q", "tests": ["assert f(1) == 1"], "proposer": "x", "entry_point": "f"},
    {"problem": "p", "tests": json.dumps([{"input": "1", "output": "1", "type": "stdin_stdout"}]), "solutions": ["x"]},
]  # fmt: skip


def test_rows_of_somebody_elses_file(planted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = Random("rows")
    rows = [replaced(row, path, hostile(random)) for row in ROWS for path in leaves(row) for _ in range(3)]
    rows += [{hostile(random): 1, "text": 1, "test_list": [1]} for _ in range(20)]
    file = planted / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for command in (["data", "check", str(file)], ["data", "show", str(file), "--count", "99"]):
        main(command)
        printed = capsys.readouterr()
        check_shown(printed.out + printed.err, " ".join(command))


@pytest.mark.slow
@pytest.mark.parametrize("command", [["data", "check"], ["evaluate"], ["eval", "mbpp", "--file"], ["swarm", "join"]])
def test_a_file_of_somebody_else_whose_names_are_hostile(
    planted: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    for seed in range(8):
        text = hostile(Random(seed))
        file = planted / str(seed) / "versions.json"
        file.parent.mkdir()
        file.write_text(json.dumps({text: text, "question": {text: 1}, "task_id": text}))
        main([*command, str(file.parent if command[0] == "weights" else file)])
        printed = capsys.readouterr()
        check_shown(printed.out + printed.err, f"{command} {seed}")


@pytest.mark.slow
def test_invitations_that_their_founder_signed(planted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wallet, random = KeystoreWallet.ephemeral(planted / "founder.json"), Random("invitations")
    plain = Invitation(
        1, wallet.address, ChainPart(31337, ["http://127.0.0.1:1"], "0x" + 40 * "a", 60.0),
        NetworkPart("swarm", 1, ["/dns4/a/tcp/1/p2p/QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"]),
        JudgePart("nano", ""),
    )  # fmt: skip
    tree = msgspec.to_builtins(plain)
    for number, path in enumerate(leaves(tree)):
        file = planted / f"{number}.toml"
        file.write_bytes(msgspec.toml.encode(replaced(tree, path, hostile(random).replace("\0", ""))))
        assert main(["swarm", "join", str(file)]) != 0
    odd = msgspec.structs.replace(
        plain, chain=msgspec.structs.replace(plain.chain, rpc=["https://chain.invalid:1/%s~*()&"])
    )
    odd = msgspec.structs.replace(odd, signature="0x" + wallet.sign_message(odd.message).hex())
    write_invitation(planted / "odd.toml", odd)
    assert compose(joined(str(planted / "odd.toml"), compose(["network=peer"]))).chain.rpc_urls == odd.chain.rpc
    printed = capsys.readouterr()
    check_shown(printed.out + printed.err, "swarm join")
    assert SECRET not in "".join(path.read_text(errors="replace") for path in planted.rglob("*") if path.is_file())


def test_what_a_page_sends(planted: Path, caplog: pytest.LogCaptureFixture) -> None:
    random = Random("page")
    forms = [
        ("claim/passkey/options", {"code": "x"}), ("claim/passphrase", {"code": "x", "passphrase": PASSPHRASE}),
        ("claim/passkey/verify", {"ticket": "x", "credential": {"id": "x", "response": {"type": "x"}}, "prf": "x"}),
        ("login/passphrase", {"passphrase": PASSPHRASE}), ("logout", {"lock": "x"}),
        ("sign-transaction", {"transaction": {"data": "x"}}),
    ]  # fmt: skip
    with page(planted / "page") as tab:
        for path, form in forms:
            for place in leaves(form):
                body = replaced(form, place, hostile(random)) | {hostile(random): 1}
                for sent in (body, replaced(form, place, hostile(random))):
                    answer = tab.post(f"/api/{path}", sent)
                    assert answer.status < 500
                    check_shown(answer.raw.decode(), path)
                    check_shown(json.dumps(answer.json, ensure_ascii=False), path)
    check_shown(caplog.text, "login.log")


BANNED = {
    "os.system", "os.popen", "os.path.expandvars", "os.spawnl", "subprocess.getoutput", "subprocess.getstatusoutput",
    "string.Template", "asyncio.create_subprocess_shell", "pickle.loads", "marshal.loads", "yaml.load", "eval", "exec",
}  # fmt: skip
JAILED = {"sandbox/jail_main.py"}
RESOLVING = {"settings.py", "models/chat.py"}
"""The user's own settings; and a model's chat template, which transformers runs in a sandbox of its own."""


def test_no_code_of_the_package_can_pass_a_text_to_a_shell_or_a_resolver() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = str(path.relative_to(PACKAGE))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and name not in JAILED:
                assert ast.unparse(node.func) not in BANNED, (name, node.lineno)
                assert not [word for word in node.keywords if word.arg == "shell"], (name, node.lineno)
            if isinstance(node, ast.ImportFrom | ast.Import):
                modules = {node.module} if isinstance(node, ast.ImportFrom) else {alias.name for alias in node.names}
                resolving = {(module or "").split(".")[0] for module in modules} & {"omegaconf", "hydra", "jinja2"}
                assert not resolving or name in RESOLVING, (name, node.lineno)
