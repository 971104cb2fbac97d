"""Imports point down, each heavy library has its homes, and the config loads none of them.

Does not show: imports made through `importlib` or strings.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "codezero"
ROLES = {"problems", "proposer", "solver", "evaluator", "swarm", "chain", "login", "monitor", "evals"}
ROWS = [
    {"errors", "stats"},
    {"types", "config", "config_model", "config_data", "config_proposer", "config_hub", "config_monitor"},
    {"protocols", "compose", "local_settings", "origins", "system"},
    {"code", "models", "sandbox"},
    ROLES,
    {"nano", "runs", "runner"},
    {"node"},
    {"inspection"},
    {"wiring"},
    {"ops"},
    {"commands"},
    {"cli"},
    {"__main__"},
]
INSIDE = {
    "config": {"config_model", "config_data", "config_proposer", "config_hub", "config_monitor"},
    "config_data": {"config_model"},
    "config_proposer": {"config_model"},
    "config_hub": {"config_model"},
    "config_monitor": {"config_model"},
    "compose": {"local_settings"},
    "origins": {"local_settings", "compose"},
}
"""Rooms of one row that are still to become one file."""
RANK = {name: rank for rank, names in enumerate(ROWS) for name in names}
HOMES: dict[str, set[str]] = {
    "benchmarks": set(),
    "simulation": set(),
    "tests": set(),
    "torch": {"models", "solver", "evaluator", "nano", "wiring", "ops"},
    "transformers": {"models", "solver", "nano"},
    "trl": {"solver"},
    "peft": {"models"},
    "psutil": {"models"},
    "vllm": {"models"},
    "llguidance": {"models"},
    "accelerate": {"solver"},
    "datasets": {"problems", "solver"},
    "datasketch": {"problems"},
    "pyarrow": {"problems", "evals"},
    "hivemind": {"swarm"},
    "httpx2": {"models", "problems"},
    "huggingface_hub": {"models", "solver", "ops"},
    "hydra": {"compose", "origins"},
    "omegaconf": {"compose", "local_settings"},
    "yaml": {"local_settings", "origins"},
    "pydantic_monty": {"sandbox"},
    "pyflakes": {"code"},
    "rich": {"monitor", "nano", "wiring", "inspection", "ops", "commands"},
    "web3": {"chain"},
    "eth": {"chain"},
    "eth_abi": {"chain"},
    "eth_account": {"chain", "login"},
    "aiohttp": {"chain", "login", "monitor", "wiring"},
    "matplotlib": {"monitor"},
    "wandb": {"monitor"},
    "tensorboardX": {"monitor"},
    "webauthn": {"login"},
    "cbor2": {"login"},
}
HEAVY = {"torch", "transformers", "trl", "peft", "accelerate", "datasets", "hivemind", "scipy", "matplotlib", "web3",
         "wandb", "tensorboardX"}  # fmt: skip
FILES = sorted(PACKAGE.rglob("*.py"))


def unit(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import"
            yield node.module or ""


def loaded_by(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    for module in imported(path):
        head, _, rest = module.partition(".")
        if head == "codezero" and rest:
            target = rest.split(".")[0]
            down = target == unit(path) or RANK[target] < RANK[unit(path)] or target in INSIDE.get(unit(path), ())
            assert down, f"{unit(path)} imports {target}"
        elif head != "codezero":
            assert unit(path) in HOMES.get(head, {unit(path)}), f"{head} does not belong in {unit(path)}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_module_says_what_it_is(path: Path) -> None:
    source = path.read_text()
    assert (path.name == "__init__.py" and not source.strip()) or ast.get_docstring(ast.parse(source))


JOINING = {"wiring", "inspection", "ops", "commands", "nano", "runs"}


def test_only_wiring_names_parts_of_several_roles() -> None:
    for path in FILES:
        roles = {module.split(".")[1] for module in imported(path) if module.startswith("codezero.")} & ROLES
        if unit(path) not in JOINING:
            assert len(roles) <= 1, f"{path} joins {sorted(roles)}"


def test_the_config_loads_no_heavy_library() -> None:
    assert not loaded_by("from codezero.compose import compose; compose()") & HEAVY


def test_help_loads_neither_hydra_nor_a_heavy_library() -> None:
    code = "from codezero.cli import build_parser; build_parser().format_help()"
    assert not loaded_by(code) & (HEAVY | {"hydra", "omegaconf", "rich"})
