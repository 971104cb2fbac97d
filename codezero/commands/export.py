"""`codezero export`: what a run has learned, in the form that other programs load."""

import argparse
from pathlib import Path

from codezero.commands import common
from codezero.commands.common import Arguments, Commands, answer, composed, say, value
from codezero.errors import ConfigError

FORMS = ("merged", "adapter", "gguf", "ollama")
EPILOG = """Each export has a card beside it: base and digests, the exam from start to end, how to measure it again.
--verify N answers N held-out problems greedily with the export and with the checkpoint, EXECUTES both in the sandbox of
audit.sandbox, and ends with 1 where the export is not what was measured. Of a GGUF llama.cpp's server answers.
A GGUF needs `uv sync --no-dev --extra gguf`.

examples:
  codezero export mine --merged mine-merged             loads with from_pretrained
  codezero export mine --adapter mine-adapter           loads with peft; of a run with model.train=lora
  codezero export mine --gguf mine.gguf --quantize q8_0 --verify 20
  codezero export mine --ollama mine-ollama             then `ollama create mine -f mine-ollama/Modelfile`
"""
TAKES: Arguments = {
    "policy": value(
        str, "RUN", "whose best checkpoint is exported, or its newest; also a checkpoint's folder or a model"
    ),
    "--merged": value(Path, "DIR", "a whole model, an adapter multiplied out in the precision of its base"),
    "--adapter": value(Path, "DIR", "the adapter alone, with the digest of its base"),
    "--gguf": value(Path, "FILE", "one file for llama.cpp; Qwen2, Qwen3 and Llama"),
    "--ollama": value(Path, "DIR", "that file and a Modelfile; models whose chat template is ChatML"),
    "--quantize": value(str, "HOW", "of a GGUF: f16 (default), q8_0 or q4_k_m"),
    "--verify": value(int, "N", "hold greedy answers to N held-out problems against the checkpoint's", default=0),
}


def add(commands: Commands) -> None:
    about = "take home what a run has learned: merged, adapter, GGUF, Ollama"
    commands.add("export", export_policy, about, TAKES, epilog=EPILOG)


def export_policy(options: argparse.Namespace) -> int:
    given = [form for form in FORMS if getattr(options, form) is not None]
    if len(given) != 1:
        raise ConfigError(f"give one of --{', --'.join(FORMS)}" + (f", not {len(given)}" if given else ""))
    (form,) = given
    if options.quantize is not None and form not in ("gguf", "ollama"):
        raise ConfigError(f"--quantize is of a GGUF; drop it, or give --gguf instead of --{form}")
    if not 0 <= options.verify <= 1000:
        raise ConfigError(f"--verify={options.verify} is out of bounds; it must be 1 to 1000")
    config = composed(options)
    from codezero.commands.evaluate import newest_policy
    from codezero.ops.export import ExportRequest, export
    from codezero.system.signals import unwinding

    config, name = newest_policy(config, options.policy)
    request = ExportRequest(name, form, getattr(options, form), options.quantize or "f16", options.verify)
    with unwinding():
        result = export(config, request, say)
    answer(options, result, "\n".join(result.lines()))
    return common.DONE if result.verified is None or result.verified.holds else common.FAILED
