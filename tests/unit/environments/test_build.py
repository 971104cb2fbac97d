"""Which settings go with an environment of one's own, and what `environment` may be."""

from pathlib import Path

import pytest

from codezero.environments.build import build_environment
from codezero.environments.code import CodeEnvironment
from codezero.errors import ConfigError
from codezero.evals.sets import HELD_OUT
from codezero.fitting import with_solver
from codezero.ops.measure import EvalRequest, measure
from codezero.settings import compose

OWN = f"{Path(__file__).parents[3] / 'examples' / 'own_environment.py'}:Vowels"


def test_the_default_is_code() -> None:
    assert isinstance(build_environment(compose()), CodeEnvironment)


def test_a_file_a_module_and_a_mapping_name_the_same() -> None:
    words = [f"environment={OWN}", f"environment={{_target_: '{OWN}'}}"]
    assert len({build_environment(compose([word])).digest for word in words}) == 1
    assert build_environment(compose(["environment=builders.environments:Sums"])).name == "sums"


def test_arguments_of_a_mapping_reach_the_taskset() -> None:
    mapping = "environment={_target_: builders.environments.Sums, name: more, levels: [1, 2]}"
    assert build_environment(compose([mapping])).name == "more"


@pytest.mark.parametrize("word", ["market.enabled=true", "reward.mode=rlvr", "data.sources=[mbpp]"])
def test_what_only_code_has_is_refused(word: str) -> None:
    with pytest.raises(ConfigError, match=word.partition("=")[0]):
        build_environment(compose([f"environment={OWN}", word]))


def test_an_object_that_is_no_taskset_is_refused_by_what_it_lacks() -> None:
    with pytest.raises(ConfigError, match=r"environment=.*without name, version, task, score"):
        build_environment(compose(["environment=collections:OrderedDict"]))


def test_the_solver_of_an_environment_stands_in_for_the_embedded_one_alone() -> None:
    environment = build_environment(compose(["environment={_target_: builders.environments.Sums, solver: its-own}"]))
    assert with_solver(compose(), environment).model.solver == "its-own"
    assert with_solver(compose(["model.solver=another/model"]), environment).model.solver == "another/model"


def test_an_eval_of_its_held_out_problems_is_scored_by_its_rule(tmp_path: Path) -> None:
    words = [f"environment={OWN}", "evals.problems=6", f"run.directory={tmp_path}"]
    request = EvalRequest(HELD_OUT, (), 2, (1,), ("nano",), judged=False, into=tmp_path)
    (result,) = measure(compose(words), request, print).results
    assert (result.label, result.problems, result.undecided_share) == ("scored", 6, 0.0)
    assert result.by.startswith("scored: rule of vowels ")
    with pytest.raises(ConfigError, match="--judged"):
        measure(compose(words), request._replace(judged=True), print)
