"""A wrong setting stops before anything heavy loads, with one line that names the key and the remedy."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from codezero.config import NodeConfig
from codezero.config.learning import source_weights
from codezero.config.training import page_origins
from codezero.errors import ConfigError
from codezero.settings import CONFIGS, as_yaml, compose, keys, quoted, trace

SHIPPED = sorted(CONFIGS.glob("*/*.yaml"))

PROFILES = CONFIGS / "profile"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}={path.stem}")
def test_every_shipped_file_is_valid(path: Path) -> None:
    assert isinstance(compose([f"{path.parent.name}={path.stem}"]), NodeConfig)


def test_shipped_files_hold_values_only() -> None:
    for path in CONFIGS.rglob("*.yaml"):
        assert "_target_" not in path.read_text()


@pytest.mark.parametrize(
    ("override", "said"),
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
        ("data.sources=[mbp]", "data.sources: mbp is unknown; choose some of: synthetic, mbpp"),
        ("data.sources=[mbpp:0]", "data.sources: mbpp:0 has no weight above 0"),
        ("data.sources=[mbpp,mbpp:2]", "data.sources: mbpp is named twice"),
        ("data.sources=[]", "data.sources: 0 sources"),
        ("profile=nowhere", "profile=nowhere is unknown; choose one of: auto"),
        ("seed", "write key=value"),
        ("seed=[1", "[1"),
    ],
)
def test_a_wrong_setting_is_one_line(override: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose([override])
    assert said in str(caught.value) and "\n" not in str(caught.value)


ORIGINS = ["http://evil.example", "https://1.2.3.4", "https://[::1]", "https://x/", "https://x?y", "https://x:443", "*",
           "http://localhost:80", "https://x:0", "https://x:99999", "https://x:08", "https://u@x", "https://X.dev", "",
           "null", "https://*.dev", "https://a..b", "https://-a.b", "https://x\n", "ftp://localhost", "https://x:",
           "http://127.0.0.1:3000", "http://localhost:8080 ", f"https://{'a.' * 200}b"]  # fmt: skip


def test_an_origin_of_the_page_is_one_that_browsers_name() -> None:
    good = ["http://localhost", "http://localhost:8080", "https://x-3000.app.github.dev", "https://3-a.b2:8443"]
    page_origins(good)
    assert compose([f"login.origins=[{','.join(map(quoted, good))}]"]).login.origins == good
    for origin in ORIGINS:
        with pytest.raises(ValueError, match="no browser names as an origin"):
            page_origins([*good, origin])
    with pytest.raises(ConfigError, match=r"^login\.origins has http://evil, .*; write https://HOST"):
        compose(["login.origins=['http://evil']"])


def test_an_override_wins_over_the_profile() -> None:
    assert compose(["profile=peer", "swarm.kind=local"]).swarm.kind == "local"


def test_the_settings_can_be_printed_and_read_back() -> None:
    shown = as_yaml(trace(["solver.learning_rate=0.001", "data.sources=[mbpp:3,'./x y']", "run.logs='a: #b'"]))
    assert "learning_rate: 0.001" in shown and all(key.split(".")[-1] + ":" in shown for key in keys())
    read = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(NodeConfig), OmegaConf.create(shown)))
    assert read == compose(["solver.learning_rate=0.001", "data.sources=[mbpp:3,'./x y']", "run.logs='a: #b'"])


def test_sources_have_weights_and_paths_may_hold_colons() -> None:
    told = compose(["data.sources=[mbpp:3,'a/b:c',synthetic,'x.jsonl:0.5']"]).data.sources
    assert source_weights(told) == {"mbpp": 3.0, "a/b:c": 1.0, "synthetic": 1.0, "x.jsonl": 0.5}


@pytest.mark.parametrize("value", ["plain", "a b", "a,b=c", "it's", "[x]"])
def test_any_path_can_be_passed_on(value: str) -> None:
    assert compose([f"run.directory={quoted(value)}"]).run.directory == value


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


@pytest.mark.parametrize("words", [[], ["profile=solo"], ["network=peer"]])
def test_the_embedded_models_stay_with_the_embedded_problems(words: list[str]) -> None:
    assert compose(words).data.sources == ["synthetic"]


def test_no_judge_is_named_only_where_every_reward_is_executed() -> None:
    assert compose(["evaluator.model=off", "reward.mode=rlvr"]).evaluator.model == "off"
    for mode in ("judge", "hybrid"):
        with pytest.raises(ConfigError, match=f"evaluator.model=off leaves reward.mode={mode} without a judge"):
            compose(["evaluator.model=off", f"reward.mode={mode}"])


RECIPES = sorted(path.stem for path in (CONFIGS / "recipe").glob("*-*.yaml"))


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_executes_every_reward_and_needs_no_judge(name: str) -> None:
    config = compose([f"recipe={name}"])
    assert (config.reward.mode, config.evaluator.model, config.reward.correctness) == ("rlvr", "off", 1)


def test_the_six_recipes_ship() -> None:
    kinds = ("codegen-verifier", "single-delta", "single-full")
    assert [f"{size}-{kind}" for size in ("code", "nano") for kind in kinds] == RECIPES


def test_a_verifier_has_cards_of_its_own_and_the_published_reward() -> None:
    config = compose(["recipe=code-codegen-verifier"])
    verifier = config.verifier
    parts = (config.rollout, config.trainer, verifier.rollout, verifier.trainer)
    assert sorted(card for part in parts for card in part.cards) == [str(card) for card in range(8)]
    assert (verifier.reward, verifier.cases, verifier.thinking, config.model.thinking) == ("astra", 2, "on", "off")


def test_a_verifier_that_could_not_learn_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs executed rewards"):
        compose(["verifier.model=nano-tests"])


@pytest.mark.parametrize("gone", ["weights.share=true", "weights.follow=12D3Koo", "role=sampler"])
def test_a_setting_that_is_gone_is_refused(gone: str) -> None:
    with pytest.raises(ConfigError, match=gone.partition("=")[0]):
        compose(["network=peer", gone])


def test_the_code_recipes_are_the_published_ones() -> None:
    config = compose(["recipe=code-single-full"])
    assert config.data.sources == ["deepcoder"] and config.answer.block == "last" and config.evals.temperature == 0.6
    assert (config.reward.test_seconds, config.reward.program_seconds, config.reward.workers) == (6, 100, 24)
    assert [source.partition(":")[0] for source in config.evals.sources] == ["humaneval", "lcb_v5", "codeforces"]
