"""The house: imports point down, each heavy library has its homes, and the numbers of its size are only ever lowered.

Does not show: imports made through `importlib` or strings."""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "codezero"
ROLES = {"proposer", "solver", "evaluator", "swarm", "chain", "market", "login", "monitor"}
ROWS = [
    {"errors", "stats"},
    {"types", "config", "system"},
    {"code", "environment", "settings", "nano"},
    {"models", "sandbox", "weights"},
    {"problems", "rollout"},
    ROLES,
    {"environments", "evals", "runs"},
    {"attempts", "fitting", "run", "inspection"},
    {"node", "propose"},
    {"ops"},
    {"commands"},
    {"cli"},
    {"__main__", "__init__"},
]
RANK = {name: rank for rank, names in enumerate(ROWS) for name in names}
HOMES: dict[str, set[str]] = {
    "benchmarks": set(),
    "oracles": set(),
    "simulation": set(),
    "tests": set(),
    "tools": set(),
    "torch": {"fitting", "models", "solver", "evaluator", "ops", "weights", "rollout"},
    "transformers": {"models", "solver"},
    "trl": {"solver"},
    "peft": {"models"},
    "psutil": {"models", "swarm"},
    "prometheus_client": {"monitor"},
    "vllm": {"models", "rollout"},
    "llguidance": {"models"},
    "accelerate": {"solver"},
    "datasets": {"problems", "solver"},
    "datasketch": {"problems"},
    "pyarrow": {"problems", "evals"},
    "hivemind": {"swarm"},
    "httpx2": {"models", "problems", "weights"},
    "openai": {"models"},
    "huggingface_hub": {"models", "monitor", "problems", "ops"},
    "hydra": {"settings"},
    "omegaconf": {"settings"},
    "yaml": {"settings"},
    "pydantic": {"config", "settings"},
    "pydantic_monty": {"sandbox"},
    "verifiers": {"environments"},
    "pyflakes": {"code"},
    "rich": {"monitor", "inspection", "ops", "commands"},
    "web3": {"chain"},
    "eth": {"chain"},
    "eth_abi": {"chain"},
    "eth_account": {"chain", "login"},
    "aiohttp": {"system", "chain", "market", "login", "monitor", "inspection", "weights", "rollout", "commands"},
    "matplotlib": {"monitor"},
    "wandb": {"monitor"},
    "webauthn": {"login"},
    "cbor2": {"login"},
    "reasoning_gym": {"environments"},
    "gguf": {"ops"},
    "xllamacpp": {"ops"},
}
HEAVY = {"torch", "transformers", "trl", "peft", "accelerate", "datasets", "hivemind", "scipy", "matplotlib", "web3",
         "wandb", "openai"}  # fmt: skip
FILES = sorted(PACKAGE.rglob("*.py"))


def unit(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def nodes(source: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(source)))


def imported(path: Path) -> Iterator[str]:
    for node in nodes(path.read_text()):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import"
            yield node.module or ""


def loaded_by(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.splitlines()[-1].split()}


def test_imports_point_down() -> None:
    for path, module in ((file, module) for file in FILES for module in imported(file)):
        head, _, rest = module.partition(".")
        if head == "codezero" and rest:
            target = rest.split(".")[0]
            base = rest.split(".")[1:] == ["base"] and target in ROLES  # an abstract base is how roles know each other
            down = target == unit(path) or base or RANK[target] < RANK[unit(path)]
            assert down, f"{path} imports {target}"
        elif head != "codezero":
            assert unit(path) in HOMES.get(head, {unit(path)}), f"{head} does not belong in {path}"


def test_every_module_says_what_it_is() -> None:
    sources = {path: path.read_text() for path in FILES if path.name != "__init__.py" or path.read_text().strip()}
    assert not [path for path, source in sources.items() if not ast.get_docstring(ast.parse(source))]


def test_no_pattern_lets_a_line_end_follow() -> None:
    """`$` also matches before one at the end of a text; `\\Z` does not, and with MULTILINE lines are meant."""
    for path in FILES:
        every = nodes(path.read_text())
        calls = [node for node in every if isinstance(node, ast.Call) and "MULTILINE" in ast.unparse(node)]
        of_lines = {id(node) for call in calls for node in ast.walk(call)}
        for node in every:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in of_lines:
                assert not re.search(r"[^\\]\$\)*\Z", node.value), f"{path}:{node.lineno}: write \\Z"


CODE_WORDS = {"solver_prompt", "extract_code", "assertions", "parse_tests"}
"""What only the environment `code`, its judge, its exam's sandbox and its own tools know."""
WITHOUT_CODE = [
    "node.py", "run.py", "attempts.py", "types.py", "solver/solver.py", "solver/learner.py", "solver/updater.py",
    "solver/peer_rollouts.py", "solver/batch.py", "models/generation.py", "swarm", "proposer/difficulty.py",
    "environments/tasks.py", "evaluator/base.py", "problems/stream.py", "rollout",
]  # fmt: skip
"""Sampler, learner, exchange and difficulty, which work from the Environment alone."""


def test_what_every_environment_shares_knows_nothing_of_code() -> None:
    shared = [path for name in WITHOUT_CODE for path in FILES if PACKAGE / name in (path, *path.parents)]
    assert len(shared) > len(WITHOUT_CODE)
    for path in shared:
        words = {node.id for node in nodes(path.read_text()) if isinstance(node, ast.Name)}
        words |= {part for module in imported(path) for part in module.split(".")}
        assert not words & CODE_WORDS, f"{path} knows {words & CODE_WORDS}"


def test_the_config_loads_no_heavy_library() -> None:
    assert not loaded_by("from codezero.settings import compose; compose()") & HEAVY


def test_help_loads_neither_hydra_nor_a_heavy_library() -> None:
    code = "from codezero.cli import build_parser; build_parser().format_help()"
    assert not loaded_by(code) & (HEAVY | {"hydra", "omegaconf", "pydantic", "rich", "msgspec", "inspect", "email"})


def test_a_status_for_machines_draws_nothing() -> None:
    code = "from codezero.cli import main; main(['status', '--json', 'run.directory=/nowhere'])"
    assert not loaded_by(code + "; import codezero.inspection.status") & (HEAVY | {"rich", "pydantic"})


MODELS = {"torch", "transformers", "accelerate", "scipy"}
"""What reading and sampling a model takes: transformers loads the latter two."""
BUILT = """
from contextlib import ExitStack
from pathlib import Path
from codezero.settings import compose
from codezero.solver.solver import GrpoSolver
from codezero.models.build import FrozenModels
from codezero.solver.build import build_policy
with ExitStack() as stack:
    learner, _ = build_policy(compose([]), [], Path("/nowhere"), print, stack)
"""
PROCESSES: dict[str, tuple[str, set[str]]] = {
    "runs": ("from codezero.cli import main; main(['runs', '/nowhere'])", set()),
    "doctor": ("from codezero.cli import main; main(['doctor', '--json', 'login.port=39217'])", {"pydantic"}),
    "its child": ("""
import io, msgspec
from codezero.config import NodeConfig
from codezero.ops.doctor import main
sys.stdin = io.TextIOWrapper(io.BytesIO(msgspec.json.encode(NodeConfig())))
main([])""", {"torch"}),
    "a node that has no models yet": ("import codezero.node", {"scipy"}),
    "page": ("import codezero.inspection.page", {"aiohttp", "eth_account", "pydantic", "webauthn"}),
    "network": ("""
from codezero.swarm import network_process
network_process._load_hivemind()
from codezero.swarm import exchange, hivemind_dht, network_monitor""",
        {"hivemind", "torch", "scipy", "pydantic"}),
    "chain": ("import codezero.chain.devchain_server, codezero.chain.devchain", {"aiohttp", "eth_account", "pydantic"}),
    "judge": ("""
from contextlib import ExitStack
from codezero.settings import compose
from codezero.evaluator.build import EMBEDDED, build_evaluator
with ExitStack() as stack:
    build_evaluator(compose(["evaluator.canaries=80"]), EMBEDDED, stack, print)""", MODELS | {"pydantic"}),
    "proposer": ("""
from codezero.models.generation import Sampler
from codezero.settings import compose
from codezero.proposer.build import FrozenModels
Sampler(FrozenModels(compose([]), print).load("nano", "proposer"))""", MODELS | {"pydantic"}),
    "learner, at the first exam": (BUILT, MODELS | {"aiohttp", "pydantic"}),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("process", PROCESSES)
def test_a_process_loads_what_it_computes_with(process: str) -> None:
    statement, may = PROCESSES[process]
    counted = HEAVY | {"aiohttp", "pydantic", "eth_account", "pyarrow", "pandas", "webauthn"}
    assert loaded_by(statement) & counted <= may | {"hydra"}


@pytest.mark.slow
def test_the_learner_loads_trl_when_it_learns() -> None:
    assert {"trl", "datasets", "peft"} <= loaded_by(BUILT + "learner._trainer")


BUDGETS = {
    "files": 221,
    "lines": 42_980,
    "lines of code": 31_556,
    "files in the root": 14,
    "rows of imports": 13,
    "public class names in two files": 0,
    "modules with one importer": 44,
    "files over 500 lines": 0,
    "variables told, heard, said, mine": 0,
    "files of the walk": 60,
    "files before the first problem": 24,
}
"""Whoever comes below one lowers it."""


def walk() -> tuple[list[str], int]:
    """The files that docs/architecture.md walks through, and how many come before the first problem is drawn."""
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text()
    rows = [row.split("|") for row in page.partition("## The walk")[2].partition("\n## ")[0].splitlines()]
    files = [(row[1].strip(), re.findall(r"`([\w/]+\.py)`", row[2])) for row in rows if len(row) == 5]
    steps = [step for step, _ in files]
    before = sum(len(names) for _, names in files[: steps.index("first problem") + 1])
    return [name for _, names in files for name in names], before


def test_the_walk_of_a_newcomer_names_each_file_once() -> None:
    files, _ = walk()
    assert len(files) == len(set(files)) and all((PACKAGE / name).is_file() for name in files)


def code_lines(source: str) -> int:
    """Lines that hold neither only a comment nor a docstring."""
    docstrings: set[int] = set()
    for node in nodes(source):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    empty = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = (token for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type not in empty)
    return len({line for token in tokens for line in range(token.start[0], token.end[0] + 1)} - docstrings)


def dotted(path: Path) -> str:
    """The module's name; a folder's is that of its `__init__.py`."""
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def edges(sources: dict[str, str]) -> dict[str, set[str]]:
    """Which of these modules each one imports, for its types alone included."""
    graph: dict[str, set[str]] = {name: set() for name in sources}
    for name, source in sources.items():
        for node in nodes(source):
            if isinstance(node, ast.ImportFrom):
                parts = (f"{node.module}.{alias.name}" for alias in node.names)
                graph[name] |= {part if part in sources else node.module or "" for part in parts}
            elif isinstance(node, ast.Import):
                graph[name] |= {alias.name for alias in node.names}
        graph[name] &= sources.keys() - {name}
    return graph


def test_no_circle_of_imports_inside_a_folder_either() -> None:
    TopologicalSorter(edges({dotted(path): path.read_text() for path in FILES})).prepare()
    circle = {"codezero.a": "from codezero import b", "codezero.b": "if TYPE_CHECKING:\n    from codezero.a import C"}
    with pytest.raises(CycleError):
        TopologicalSorter(edges(circle)).prepare()


def only_importers(sources: dict[Path, str]) -> int:
    """Modules that exactly one other imports."""
    graph = edges({dotted(path): source for path, source in sources.items()})
    counts = Counter(module for modules in graph.values() for module in modules)
    return sum(counts[dotted(path)] == 1 for path in sources if path.name != "__init__.py")


def measured() -> dict[str, int]:
    sources = {path: path.read_text() for path in FILES}
    lines = {path: source.count("\n") for path, source in sources.items()}
    every = [(path, node) for path, source in sources.items() for node in nodes(source)]
    classes = {(node.name, path) for path, node in every if isinstance(node, ast.ClassDef) and node.name[0] != "_"}
    words = Counter(node.id for _, node in every if isinstance(node, ast.Name))
    words += Counter(node.arg for _, node in every if isinstance(node, ast.arg))
    return {
        "files": len(FILES),
        "lines": sum(lines.values()),
        "lines of code": sum(map(code_lines, sources.values())),
        "files in the root": sum(path.parent == PACKAGE for path in FILES),
        "rows of imports": len(ROWS),
        "public class names in two files": sum(count > 1 for count in Counter(name for name, _ in classes).values()),
        "modules with one importer": only_importers(sources),
        "files over 500 lines": sum(count > 500 for count in lines.values()),
        "variables told, heard, said, mine": sum(words[word] for word in ("told", "heard", "said", "mine")),
        "files of the walk": len(walk()[0]),
        "files before the first problem": walk()[1],
    }


def test_the_house_grows_no_more() -> None:
    over = {name: (size, BUDGETS[name]) for name, size in measured().items() if size > BUDGETS[name]}
    assert not over, f"(is, may be): {over}"
