"""Write the tables of docs/settings.md from the classes in codezero/config: defaults, bounds and meanings.

    .venv/bin/python scripts/settings_page.py

What stands above the mark is kept as it is. A test compares the page with what this writes.
"""

import ast
import dataclasses
import inspect
import os
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "settings.md"
MARK = "<!-- Written by scripts/settings_page.py from codezero/config; edit the docstrings there. -->\n"
SIGNS = {"ge": "≥ {:,}", "gt": "> {:,}", "le": "≤ {:,}", "lt": "< {:,}"}


class Setting(NamedTuple):
    key: str
    default: object
    """Of the class, before any file is read."""
    bounds: str
    meaning: str


def sections(schema: type, name: str = "") -> Iterator[tuple[str, type, list[Setting]]]:
    """Name, class and settings of a class, then of those that its fields are."""
    hints = typing.get_type_hints(schema, include_extras=True)
    meanings = _meanings(schema)
    settings: list[Setting] = []
    below: list[tuple[str, type]] = []
    for field in dataclasses.fields(schema):
        hint, key = hints[field.name], f"{name}.{field.name}".lstrip(".")
        if dataclasses.is_dataclass(hint):
            below.append((key, typing.cast("type", hint)))
            continue
        factory = field.default_factory
        default = field.default if factory is dataclasses.MISSING else factory()
        settings.append(Setting(key, default, _bounds(hint), meanings[field.name]))
    yield name, schema, settings
    for key, part in below:
        yield from sections(part, key)


def _meanings(schema: type) -> dict[str, str]:
    """The docstring below each field."""
    classes = [part for part in schema.__mro__ if dataclasses.is_dataclass(part)]
    definitions = [typing.cast("ast.ClassDef", ast.parse(inspect.getsource(part)).body[0]) for part in classes]
    body = [node for definition in definitions for node in definition.body]
    found: dict[str, str] = {}
    for node, below in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text = ""
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                text = inspect.cleandoc(str(below.value.value)).replace("\n", " ")
            found[node.target.id] = text
    return found


def _bounds(hint: Any) -> str:
    """Of a number its interval, of a text its choices, of a switch both values."""
    if typing.get_origin(hint) is typing.Literal:
        return ", ".join(f"`{choice}`" for choice in typing.get_args(hint))
    if hint is bool:
        return "`true`, `false`"
    metadata = getattr(hint, "__metadata__", ())
    limits = [(sign, getattr(limit, name, None)) for limit in metadata for name, sign in SIGNS.items()]
    return ", ".join(sign.format(value) for sign, value in limits if value is not None)


def _shown(value: object) -> str:
    if value in ("", []):
        return "empty"
    text = str(value).lower() if isinstance(value, bool) else str(value).replace("'", "").replace(", ", ",")
    return f"`{text}`"


def page() -> str:
    """The whole page, with the head that it has now."""
    os.environ["CODEZERO_LOCAL"] = ""
    from codezero.config import NodeConfig
    from codezero.settings import trace

    values = trace([]).values
    head = PAGE.read_text().partition(MARK)[0]
    lines: list[str] = []
    for name, schema, settings in sections(NodeConfig):
        what = (inspect.getdoc(schema) or "").replace("\n", " ")
        lines += ["", f"## {name or 'node'}", "", what, ""]
        lines += ["| setting | default | bounds | meaning |", "|---|---|---|---|"]
        for setting in settings:
            default = _shown(setting.default)
            if values[setting.key] != setting.default:
                default += f"; embedded models {_shown(values[setting.key])}"
            meaning = setting.meaning.replace("|", "\\|")
            lines.append(f"| `{setting.key}` | {default} | {setting.bounds} | {meaning} |")
    return head + MARK + "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PAGE.write_text(page())
