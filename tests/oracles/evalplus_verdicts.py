"""What the package evalplus says of attempts: its own checker on rows in the schema of its files.

Run by a Python that has it (`pip install evalplus`): lines of JSON in, `[dataset, row, code]`, and out, `[base, plus]`.
"""

import json
import sys
from typing import Any


def verdicts(dataset: str, row: dict[str, Any], code: str, known: dict[str, Any]) -> list[bool]:
    from evalplus.data.mbpp import mbpp_deserialize_inputs
    from evalplus.eval import PASS, untrusted_check
    from evalplus.eval._special_oracle import MBPP_OUTPUT_NOT_NONE_TASKS
    from evalplus.gen.util import trusted_exec

    entry, passed = row["entry_point"], list[bool]()
    for part in ("base_input", "plus_input"):
        inputs = row[part] or []
        inputs = mbpp_deserialize_inputs(row["task_id"], inputs) if dataset == "mbpp" else inputs
        if (key := f"{row['task_id']} {part}") not in known:
            none = entry in MBPP_OUTPUT_NOT_NONE_TASKS and dataset == "mbpp"
            source = row["prompt"] + row["canonical_solution"]
            known[key] = trusted_exec(source, inputs, entry, record_time=True, output_not_none=none)
        expected, seconds = known[key]
        status, _ = untrusted_check(dataset, code, inputs, entry, expected, row["atol"], seconds, fast_check=True)
        passed.append(status == PASS)
    return [passed[0], all(passed)]


def main() -> None:
    known: dict[str, Any] = {}
    for line in sys.stdin:
        dataset, row, code = json.loads(line)
        print(json.dumps(verdicts(dataset, row, code, known)), flush=True)


if __name__ == "__main__":
    main()
