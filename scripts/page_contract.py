"""Write the contracts of modal-login/src/api from the types of the page's API: an answer's fields and their kinds.

    .venv/bin/python scripts/page_contract.py

A test compares the files with what this writes.
"""

import json
import re
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import msgspec

from codezero.inspection.market import GamePage, GamesPage, MarketView
from codezero.inspection.status import LogTail, RunCheckpoints
from codezero.login.login import LoginState
from codezero.login.routes import PasskeyOptions
from codezero.monitor.run_types import Leaderboard, Rollout, RolloutPage, Runs, RunSettings, RunView

FOLDER = Path(__file__).parents[1] / "modal-login" / "src" / "api"
CONTRACTS: dict[str, list[Any]] = {
    "contract.ts": [RunView, Runs, RolloutPage, Rollout, Leaderboard, RunSettings, LogTail, RunCheckpoints],
    "market_contract.ts": [MarketView, GamesPage, GamePage],
    "login_contract.ts": [LoginState, PasskeyOptions],
}
HEAD = "/** Written by scripts/page_contract.py from the types of the server; null means not measured, or unknown. */\n"
CHECKS = ("anyObject", "flag", "list", "maybe", "number", "oneOf", "series", "table", "text")
WORD = re.compile(r"(?<!\")\b\w+")
PLAIN = {"integer": "number", "number": "number", "string": "text", "boolean": "flag", "object": "anyObject"}


def check(schema: dict[str, Any]) -> str:
    """How `check.ts` writes a JSON schema."""
    match schema:
        case {"$ref": reference}:
            return reference.rpartition("/")[2]
        case {"anyOf": [inner, {"type": "null"}]}:
            return f"maybe({check(inner)})"
        case {"enum": [*values, None]}:
            return f"maybe({check({'enum': values})})"
        case {"enum": values}:
            return f"oneOf({', '.join(json.dumps(value) for value in values)})"
        case {"type": "array", "prefixItems": _}:
            return "point"
        case {"type": "array", "items": items}:
            return "series" if check(items) == "point" else f"list({check(items)})"
        case {"type": "object", "additionalProperties": {}}:
            return f"table({check(schema['additionalProperties'])})"
        case _:
            return PLAIN[schema["type"]]


def contract(types: list[Any]) -> str:
    """The file: a check for each of `types` and of what they hold, inner ones first, and its type."""
    _, components = msgspec.json.schema_components(types)
    fields = {
        name: {field: check(schema) for field, schema in component["properties"].items()}
        for name, component in components.items()
    }
    words = {name: WORD.findall(" ".join(kinds.values())) for name, kinds in fields.items()}
    order = TopologicalSorter({name: sorted({*used} & {*fields}) for name, used in words.items()}).static_order()
    checks = sorted({word for used in words.values() for word in used} & {*CHECKS})
    parts = [f'{HEAD}import {{ type Checked, {", ".join(sorted([*checks, "object"]))} }} from "./check";\n']
    for name in order:
        lines = "".join(f"  {field}: {kind},\n" for field, kind in fields[name].items())
        parts.append(f"export const {name} = object({{\n{lines}}});\nexport type {name} = Checked<typeof {name}>;\n")
    return "\n".join(parts)


if __name__ == "__main__":
    for file, types in CONTRACTS.items():
        (FOLDER / file).write_text(contract(types))
