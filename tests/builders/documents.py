"""What the pages say: their code blocks, commands, settings and links, and the lines that the program can print."""

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")), ROOT / "examples" / "README.md"]
LAUNCHER = "./run_swarm.sh"
NEEDS = ("a fresh machine", "another machine", "a GPU", "the hub", "an account", "git")
"""Why a block is not run: `<!-- not run by the test: ... -->` in the line above it. Its commands are still parsed."""
MARK = "<!-- not run by the test: "
BETWEEN = {"&&", "||", ";", "&", "|", "then", "else", "fi", "if", "do", "done"}
GAP = "…"


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    language: str
    text: str
    needs: str  # what it needs that is not here; empty: nothing, it is run

    @property
    def lines(self) -> list[str]:
        """Of a shell block, continued ones joined."""
        return [line for line in re.sub(r"\\\n\s*", "", self.text).splitlines() if line.strip()]


def blocks(page: Path) -> list[Block]:
    pattern = rf"(?:^{re.escape(MARK)}([^\n]*?) -->\n)?^```(\w*)\n(.*?)^```$"
    found = re.findall(pattern, page.read_text(), re.DOTALL | re.MULTILINE)
    return [Block(language, text, needs) for needs, language, text in found]


def launched(line: str) -> list[list[str]]:
    """The words that go to codezero from each call of the launcher in a line of shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    calls: list[list[str]] = []
    inside = False
    for word in lexer:
        if word == LAUNCHER:
            calls.append([])
        inside = word == LAUNCHER or (inside and word not in BETWEEN)
        if inside and word != LAUNCHER:
            calls[-1].append(word)
    return [call if call and "=" not in call[0] else ["run", *call] for call in calls]


def inline(page: Path) -> list[str]:
    """Code in the text, blocks left out."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"`([^`\n]+)`", text)


def links(page: Path) -> list[str]:
    """Targets of links and pictures."""
    return re.findall(r"\]\(([^)\s]+)\)", page.read_text())


def anchors(page: Path) -> set[str]:
    """Of headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def launcher(folder: Path, body: str) -> Path:
    """The real one, in a checkout in which everything is installed and `codezero` is `body`."""
    scripts = {"scripts/install.sh": "exit 0", "scripts/build_page.sh": "exit 1", ".venv/bin/codezero": body}
    texts = {name: f"#!/usr/bin/env bash\n{text}\n" for name, text in scripts.items()}
    texts |= {name: (ROOT / name).read_text() for name in ("codezero.sh", "run_swarm.sh")}
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    return folder / "run_swarm.sh"


@cache
def printable() -> tuple[re.Pattern[str], ...]:
    """Every text of the program that has enough words to be known by, as a pattern with gaps."""
    texts: set[str] = set()
    for path in (ROOT / "codezero").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            texts |= set(_texts(node))
    return tuple(re.compile("(.+?)".join(map(re.escape, text.split(GAP)))) for text in texts)


def _texts(node: ast.AST) -> Iterator[str]:
    for text in _literals(node):
        text = re.sub(r"%(?:\.\d+)?[sdgrf]", GAP, text) if isinstance(node, ast.Constant) else text
        if len(text.replace(GAP, "").split()) >= 3:
            yield re.sub(rf"{GAP}+", GAP, text)


def _literals(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else GAP for part in node.values)


def same_metric(key: str, other: str) -> bool:
    """Does one of the two, whose parts that vary hold anything, cover the other?"""
    return any(
        re.fullmatch(".+".join(map(re.escape, wide.split(GAP))), narrow)
        for wide, narrow in ((key, other), (other, key))
    )


def can_print(line: str) -> bool:
    """Is the line a text of the program whose gaps hold `…`, one word, or again such a text?"""
    matches = filter(None, (pattern.fullmatch(line) for pattern in printable()))
    return any(
        all(gap == GAP or re.fullmatch(r"\w+", gap) or can_print(gap) for gap in match.groups()) for match in matches
    )


def listed_metrics() -> list[str]:
    """Keys of metrics.jsonl in the tables of docs/logs.md, the parts that vary as GAP."""
    table = (ROOT / "docs" / "logs.md").read_text().partition("## Sampler and learner")[2].partition("## Elsewhere")[0]
    cells = [row.split(" | ")[0] for row in table.splitlines() if row.startswith("| `")]
    keys = [key for cell in cells for key in re.findall(r"`([^`]+)`", cell)]
    return [
        re.sub("[A-Z]+", GAP, key if "mismatch" not in key else f"train/{key.removeprefix('train/')}") for key in keys
    ]


def written_metrics(prefixes: set[str]) -> set[str]:
    """Keys of such prefixes that the program names, the parts that vary as GAP."""
    nodes = (node for path in (ROOT / "codezero").rglob("*.py") for node in ast.walk(ast.parse(path.read_text())))
    texts = {text for node in nodes for text in _literals(node)}
    return {
        text
        for text in texts
        if re.fullmatch(rf"[a-z]+/[a-z_0-9/{GAP}]*[a-z0-9{GAP}]", text) and text.split("/")[0] in prefixes
    }
