"""Settings: shipped values, then configs/local.yaml, then the command line; a wrong one is one line that names it."""

import json
import operator
import re
from pathlib import Path

import pytest

from codezero import settings as module
from codezero.cli import main
from codezero.config import PLUGIN_KEYS, SOURCE_KEYS, NodeConfig, page_origins, plugins_of
from codezero.config.learning import check_commas, named, source_weights
from codezero.errors import ConfigError
from codezero.models.hardware import source_of
from codezero.settings import CONFIGS, KINDS, LOCAL, MAX_BYTES, VARIABLE, as_yaml, compose, own_settings, trace, typed

MINE = """
profile: peer
model: qwen
solver:
  learning_rate: 1e-4
  micro_batch_rows: 2
evals.every: 7
data:
  sources: [mbpp:3, "./a b,c"]
swarm:
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file, in a folder in which everything is started."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(VARIABLE)
    LOCAL.parent.mkdir()
    return LOCAL


def test_they_win_over_the_shipped_values_and_lose_to_the_command_line(own: Path) -> None:
    own.write_text(MINE)
    config = compose(["solver.micro_batch_rows=3"])
    assert (config.swarm.kind, config.solver.max_new_tokens) == ("hivemind", 384)  # of the groups it chooses
    assert (config.solver.learning_rate, config.solver.micro_batch_rows, config.evals.every) == (1e-4, 3, 7)
    assert config.data.sources == ["mbpp:3", "./a b,c"]
    assert compose(["profile=solo", "model=nano"]).solver.max_new_tokens == 48


def test_each_value_names_its_origin(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own.write_text(MINE)
    assert main(["config", "show", "--json", "seed=3", "solver={grad_clip:2.0}"]) == 0
    report = json.loads(capsys.readouterr().out)
    origins = {key: setting["origin"] for key, setting in report["settings"].items()}
    assert report["local"] == "configs/local.yaml"
    assert report["groups"] == {"model": "qwen", "network": "peer", "profile": "peer", "recipe": "none"}
    assert origins["seed"] == origins["solver.grad_clip"] == "command line"
    assert origins["solver.learning_rate"] == origins["evals.every"] == "configs/local.yaml"
    assert (origins["solver.max_new_tokens"], origins["swarm.kind"]) == ("model=qwen", "network=peer")
    assert origins["solver.group_size"] == "default"
    assert report["settings"]["solver.learning_rate"]["value"] == 1e-4
    assert main(["config", "show"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.endswith("your own settings: configs/local.yaml")
    assert all("  # " in line or line.endswith(":") for line in lines)
    assert sum(line.endswith("# configs/local.yaml") for line in lines) == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("solver:\n  learning_rat: 1", "solver.learning_rat is not a setting; did you mean solver.learning_rate?"),
        ("learning_rat:", "learning_rat is not a setting"),
        ("solver: {learning_rate: -1}", "solver.learning_rate=-1 is out of bounds"),
        ("solver: {learning_rate: }", "solver.learning_rate has no value"),
        ("profile: nowhere", "profile=nowhere is unknown; choose one of: auto, "),
        ("profile: {solver: 1}", "profile.solver is not a setting"),
        ("data: {sources: [{mbpp: 3}]}", "data.sources has a section or a list in its list"),
        ("- seed", "holds no settings"),
        ("seed", "seed has no value"),
        ("seed: [", "is no YAML"),
        ("seed: 1\nseed: 2", "is no YAML"),
        ("seed: \x00", "is no YAML"),
        ("!!python/object/apply:os.getpid []", "is no YAML"),
        ("#" * (MAX_BYTES + 1), "is larger than"),
    ],
    ids=lambda text: text[:24].encode("unicode_escape").decode(),
)
def test_what_is_wrong_is_one_line_that_names_the_file(own: Path, text: str, said: str) -> None:
    own.write_text(text)
    with pytest.raises(ConfigError) as caught:
        compose()
    assert str(caught.value).startswith("configs/local.yaml") and said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "solver:\n  # learning_rate: 1\n"])
def test_a_file_that_says_nothing_is_none(own: Path, text: str) -> None:
    own.write_text(text)
    assert compose() == compose(["seed=0"])


def test_the_command_line_is_not_blamed_on_the_file(own: Path) -> None:
    own.write_text("seed: 1")
    with pytest.raises(ConfigError, match=r"^solver\.group_size=1 is out of bounds"):
        compose(["solver.group_size=1"])


def test_another_file_can_be_named_and_has_to_be_there(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own.write_text("seed: 1")
    Path("mine.yaml").write_text("seed: 2")
    monkeypatch.setenv(VARIABLE, "mine.yaml")
    assert compose().seed == 2
    monkeypatch.setenv(VARIABLE, "nowhere.yaml")
    with pytest.raises(ConfigError, match=r"nowhere\.yaml cannot be read \(No such file"):
        compose()
    monkeypatch.setenv(VARIABLE, "")
    assert compose().seed == 0


def test_a_real_solver_learns_from_real_problems_also_without_a_group(tmp_path: Path) -> None:
    real = compose(["model.solver=Qwen/Qwen2.5-Coder-0.5B-Instruct"])
    assert real.data.sources == compose(["model=qwen"]).data.sources and real.evals.sources == ["mbpp_test"]
    assert compose(["model.solver=some/model", "data.sources=[synthetic]"]).data.sources == ["synthetic"]
    assert trace(["model.solver=some/model"]).origins["data.sources"] == "real solver"
    (tmp_path / "config.json").write_text('{"vocab_size": 768}')
    assert compose([f"model.solver={tmp_path}"]).data.sources == compose().data.sources == ["synthetic"]


PLUGIN = """
evaluator:
  kind: custom
  object: {_target_: x.Y, strict: true, rate: 1e-4, words: "a b, ${seed}", of: {n: [1, null]}}
reward.function: own.py:f
"""


def test_code_of_ones_own_may_take_arguments(own: Path) -> None:
    own.write_text(PLUGIN)
    wanted = {"_target_": "x.Y", "strict": True, "rate": 1e-4, "words": "a b, 0", "of": {"n": [1, None]}}
    settings = trace([])
    assert settings.values["evaluator.object"] == wanted and settings.origins["evaluator.object"] == str(LOCAL)
    assert settings.values["evaluator.model"] == "x.Y", "what a run is labelled and shown with"
    assert settings.values["reward.function"] == "own.py:f"
    assert "object: {_target_: x.Y, of: {n: [1, null]}, " in as_yaml(settings)


@pytest.mark.parametrize("typed", ["own.py:Judge", "{_target_: own.py:Judge, strict: true}"])
def test_the_command_lines_wins_whole(own: Path, typed: str) -> None:
    own.write_text(PLUGIN)
    settings = trace([f"evaluator.object={typed}"])
    value = {"_target_": "own.py:Judge", "strict": True} if typed[0] == "{" else typed
    assert settings.values["evaluator.object"] == value
    assert settings.origins["evaluator.object"] == "command line"


def test_every_key_that_may_name_code_is_found_and_is_one() -> None:
    shelves = ["data.sources=[a.py:r:2,x.y:r,mbpp]", "evals.sources=[./b.py:r]", "evaluator.canaries_from=c.py:r"]
    codes = ["environment=e.py:E", "evaluator.kind=custom", "evaluator.object={_target_: x.Y}", "reward.function=r"]
    config = compose([*shelves, *codes, "solver.loss=custom", "solver.loss_function=f.py:f"])
    slots = [(slot.key, named(slot.spec)) for slot in plugins_of(config)]
    assert [name for _, name in slots] == ["e.py:E", "x.Y", "r", "f.py:f", "a.py:r", "x.y:r", "./b.py:r", "c.py:r"]
    assert {key for key, _ in slots} == {*PLUGIN_KEYS, *SOURCE_KEYS} <= KINDS.keys()


TEXTS = [
    "1.10", "2026_11_28", "2026-11-28", "true", "1e3", "null", "nan", "0x10", "007", "yes", "12:30", ".5", "1_000",
    "/home/jürgen/模型", "/data/lr=1e-4/x", "/data/rows (1).jsonl", "/data/a#b", "/a&b;c!d", "/it's/a,b", "/a[1]{2}",
    "a\\b\\", "a b", "/x/~/y", "$HOME", "ends'",
]  # fmt: skip
"""Each is what it says, in every setting that is a text."""
OF_YAML = ["&a/b", "'tis", "@home", "/a: b", "*", "[x", "{x", "!x", "%"]
"""On a command line too; YAML has to be given quotes, and says so."""


def in_file(own: Path, text: str) -> dict[str, object]:
    own.write_text(text)
    return own_settings({})


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_what_was_typed_also_in_a_list_or_a_section_and_in_the_file(own: Path, text: str) -> None:
    item, scalar = text.replace(",", ""), text.translate(str.maketrans("", "", "[]{},"))
    assert typed([f"run.name={text}"]) == {"run.name": text}
    assert typed([f"trainer.cards=[{item}, x]"]) == {"trainer.cards": [item, "x"]}
    assert typed([f"run={{name: {scalar}, logs: 'a, b'}}"]) == {"run.name": scalar, "run.logs": "a, b"}
    assert in_file(own, f"run.name: {text}\nmodel: {{solver: {scalar}}}") == {"run.name": text, "model.solver": scalar}
    assert in_file(own, f"trainer:\n  cards:\n  - {text}\n  - 01\n") == {"trainer.cards": [text, "01"]}


def test_it_stays_so_in_every_setting_that_takes_any_text() -> None:
    taken = {"", "logs", "runs", "swarm.pem", "wallet.json"}
    free = [key for key, kind in KINDS.items() if kind is str and operator.attrgetter(key)(NodeConfig()) in taken]
    free = [
        key for key in free if not key.startswith(("hub.rep", "weights", "model.adapter")) and key not in PLUGIN_KEYS
    ]
    given = dict(zip(free, TEXTS * 9, strict=False))
    given |= {"run.name": "2026_11_28", "chain.directory": "1.10", "login.directory": "1e3", "swarm.name": "true"}
    config = compose([*(f"{key}={text}" for key, text in given.items()), f"trainer.cards=[{','.join(TEXTS[:13])}]"])
    assert {key: operator.attrgetter(key)(config) for key in given} == given and len(given) > 15
    assert config.trainer.cards == TEXTS[:13]


@pytest.mark.parametrize("text", OF_YAML)
def test_what_yaml_reads_as_its_own_names_the_setting(own: Path, text: str) -> None:
    assert typed([f"run.logs={text}"]) == {"run.logs": text}
    with pytest.raises(ConfigError, match=r"^configs/local\.yaml is no YAML: .*run\.logs.*; a text may stand"):
        in_file(own, f"run.logs: {text}")
    assert in_file(own, f"run.logs: {json.dumps(text)}") == {"run.logs": text}


def test_a_comma_is_in_a_path_where_quotes_or_the_disk_say_so(own: Path) -> None:
    assert typed(["data.sources=['/a,b/x.jsonl',mbpp:3]"]) == {"data.sources": ["/a,b/x.jsonl", "mbpp:3"]}
    for two in (["/a", "./b/x.jsonl"], ["a/x.jsonl", "b/x.jsonl"], ["mbpp", "a/b"], ["/a.py:rows", "x.y:r"]):
        check_commas(two, ["mbpp"])
    Path("x.jsonl,y.jsonl").touch()
    with pytest.raises(ValueError, match=r"write \['x.jsonl,y.jsonl'\] for one path, ./y.jsonl for two"):
        check_commas(["x.jsonl", "y.jsonl"], ["mbpp"])


@pytest.mark.parametrize("quoted", ["'1.10'", '"1.10"'])
def test_quotes_around_all_of_it_are_none_of_it(own: Path, quoted: str) -> None:
    assert typed([f"run.name={quoted}"]) == in_file(own, f"run.name: {quoted}") == {"run.name": "1.10"}
    listed = {"data.sources": ["1.10"]}
    assert typed([f"data.sources=[{quoted}]"]) == in_file(own, f"data.sources: [{quoted}]") == listed


PATHS = ["run.directory", "run.logs", "swarm.identity", "swarm.members", "chain.directory", "chain.wallet",
         "hub.token_file", "chain.passphrase_file", "login.directory", "evaluator.probe",
         "evaluator.canaries_from", "swarm.invitation"]  # fmt: skip


def test_a_tilde_is_the_home_folder_in_every_path(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Path("it's home").absolute()
    monkeypatch.setenv("HOME", str(home))
    for text, meant in (("~/x y", home / "x y"), ("~", home), ("'~/x'", home / "x")):
        for key in PATHS:
            assert typed([f"{key}={text}"]) == in_file(own, f"{key}: {text}") == {key: str(meant)}
    own.unlink()
    (home / "model").mkdir(parents=True)
    (home / "model" / "config.json").write_text('{"vocab_size": 768}')
    config = compose(["model.solver=~/model"])
    assert (config.model.solver, config.data.sources) == ("~/model", ["synthetic"]), "others may read a model's name"
    assert source_of("~/model", "solver") == str(home / "model") and source_of("~nobody/x", "solver") == "~nobody/x"


SHIPPED = sorted(CONFIGS.glob("*/*.yaml"))

PROFILES = CONFIGS / "profile"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}={path.stem}")
def test_every_shipped_file_is_valid(path: Path) -> None:
    assert isinstance(compose([f"{path.parent.name}={path.stem}"]), NodeConfig)


def test_shipped_files_hold_values_of_settings_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "values.yaml"))
    for path in CONFIGS.rglob("*.yaml"):
        assert "_target_" not in path.read_text()
        values = re.sub(r"defaults:\n(  - .*\n)+", "", path.read_text())
        (tmp_path / "values.yaml").write_text(f"{values}\nrun: {{}}\n" if "run:" not in values else values)
        assert own_settings({}).keys() <= KINDS.keys()


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("solver.learning_rat=1", "did you mean solver.learning_rate?"),
        ("solvr.learning_rate=1", "did you mean solver.learning_rate?"),
        ("solver.learning_rate=fast", "solver.learning_rate=fast: this is not a number"),
        ("solver.learning_rate=nan", "must be at most 0.1"),
        ("solver.learning_rate=-1", "must be more than 0"),
        ("solver.group_size=1", "must be at least 2"),
        ("solver.group_size=2.5", "this is not a whole number"),
        ("solver.loss=ppo", "choose one of: dapo, custom"),
        ("solver=3", "solver=3"),
        ("evaluator.questions=[guess]", "evaluator.questions has the unknown guess; choose some of: likelihood"),
        ("data.sources=[mbp]", "data.sources: mbp is unknown; choose some of: synthetic, mbpp"),
        ("data.sources=[mbpp:0]", "data.sources: mbpp:0 has no weight above 0"),
        ("data.sources=[mbpp,mbpp:2]", "data.sources: mbpp is named twice"),
        ("data.sources=[]", "data.sources: 0 sources"),
        ("profile=nowhere", "profile=nowhere is unknown; choose one of: auto"),
        ("seed", "write key=value"),
        ("seed=[1", "[1"),
        ("seed=1,2", "seed=1,2: this is not a whole number"),
        ("seed=null", "seed=null: this is not a whole number"),
        ("profile=a(b", "profile=a(b is unknown"),
        ("data.sources=/a,b", "data.sources=/a,b is no list; write data.sources=['/a,b']"),
        ("data.sources=[/data/a,b/x.jsonl]", "write ['/data/a,b/x.jsonl'] for one path, ./b/x.jsonl for two"),
        ("evals.sources=[humaneval:/d/a,b.gz]", "write ['humaneval:/d/a,b.gz'] for one path"),
        ("run={name", "run={name is no YAML"),
        ("swarm=${hub}", "swarm=${hub} gives a section no setting"),
        ("~run.name=x", "~run.name is not a setting; did you mean run.name?"),
        ("reward.function={strict: true}", "reward.function has no _target_; write"),
        ("reward.function=3", "reward.function=3 names nothing"),
        ("reward.function={_target_: x.y, 3: 1}", "has the argument 3, which is no name"),
        ("solver.loss=custom", "solver.loss=custom needs code of your own; set solver.loss_function=file.py:attribute"),
        ("solver.loss_function=x.py:f", "solver.loss_function is used with solver.loss=custom alone"),
        ("evaluator.object=x.py:f", "evaluator.object is used with evaluator.kind=custom alone"),
        ("evaluator.kind=custom", "evaluator.kind=custom needs code of your own"),
        ("data.sources=[mbpp:rows]", "mbpp:rows is unknown"),
    ],
)
def test_a_wrong_setting_is_one_line(override: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose([override])
    assert words in str(caught.value) and "\n" not in str(caught.value)


ORIGINS = ["http://evil.example", "https://1.2.3.4", "https://[::1]", "https://x/", "https://x?y", "https://x:443", "*",
           "http://localhost:80", "https://x:0", "https://x:99999", "https://x:08", "https://u@x", "https://X.dev", "",
           "null", "https://*.dev", "https://a..b", "https://-a.b", "https://x\n", "ftp://localhost", "https://x:",
           "http://127.0.0.1:3000", "http://localhost:8080 ", f"https://{'a.' * 200}b"]  # fmt: skip


def test_an_origin_of_the_page_is_one_that_browsers_name() -> None:
    good = ["http://localhost", "http://localhost:8080", "https://x-3000.app.github.dev", "https://3-a.b2:8443"]
    page_origins(good)
    assert compose([f"login.origins=[{','.join(map(module.quoted, good))}]"]).login.origins == good
    for origin in ORIGINS:
        with pytest.raises(ValueError, match="no browser names as an origin"):
            page_origins([*good, origin])
    with pytest.raises(ConfigError, match=r"^login\.origins has http://evil, .*; write https://HOST"):
        compose(["login.origins=['http://evil']"])


def test_the_settings_can_be_printed_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["solver.learning_rate=0.001", "data.sources=[mbpp:3,'./x y']", "run.logs='a: #b'", "solver.kl_beta=1e-5"]
    (tmp_path / "all.yaml").write_text(as_yaml(trace(given)))
    config = compose(given)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "all.yaml"))
    assert own_settings({}).keys() == KINDS.keys() and compose() == config


def test_sources_have_weights_and_paths_may_hold_colons() -> None:
    sources = compose(["data.sources=[mbpp:3,'a/b:c',synthetic,'x.jsonl:0.5']"]).data.sources
    assert source_weights(sources) == {"mbpp": 3.0, "a/b:c": 1.0, "synthetic": 1.0, "x.jsonl": 0.5}


def test_a_proposer_behind_an_endpoint_needs_its_address() -> None:
    with pytest.raises(ConfigError, match=r"proposer\.url='' is no address; proposer\.kind=openai"):
        compose(["proposer.kind=openai", "proposer.model=name"])
    settings = compose(["proposer.kind=openai", "proposer.url=http://127.0.0.1:8000", "proposer.model=/served/name"])
    assert settings.proposer.url and settings.proposer.taken == 0
    assert compose(["proposer.kind=openai", "proposer.model=off"]).proposer.model == "off"


@pytest.mark.parametrize("words", ["model=qwen", *(f"profile={path.stem}" for path in PROFILES.glob("*.yaml"))])
def test_real_models_learn_from_real_problems_unless_others_are_named(words: str) -> None:
    config = compose([words])
    if config.model.solver == "nano":
        return
    large = "0.5B" not in config.model.solver and config.model.solver != "auto"
    assert config.data.sources == ["mbpp:3", "code_contests:1" if large else "synthetic:1"]
    assert config.evals.sources == ["mbpp_test"]
    assert compose([words, "data.sources=[synthetic]"]).data.sources == ["synthetic"]


def test_no_judge_is_named_only_where_every_reward_is_executed() -> None:
    assert compose(["evaluator.model=off", "reward.mode=rlvr"]).evaluator.model == "off"
    for mode in ("judge", "hybrid"):
        with pytest.raises(ConfigError, match=f"evaluator.model=off leaves reward.mode={mode} without a judge"):
            compose(["evaluator.model=off", f"reward.mode={mode}"])


def test_the_four_recipes_execute_every_reward_and_need_no_judge() -> None:
    for name in ("code-single-delta", "code-single-full", "nano-single-delta", "nano-single-full"):
        config = compose([f"recipe={name}"])
        assert (config.reward.mode, config.evaluator.model, config.reward.correctness) == ("rlvr", "off", 1)


def test_the_code_recipes_are_the_published_ones() -> None:
    config = compose(["recipe=code-single-full"])
    assert config.data.sources == ["deepcoder"] and config.answer.block == "last" and config.evals.temperature == 0.6
    assert (config.reward.test_seconds, config.reward.program_seconds, config.reward.workers) == (6, 100, 24)
    assert [source.partition(":")[0] for source in config.evals.sources] == ["humaneval", "livecodebench"]
