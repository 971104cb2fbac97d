"""`codezero export`: a policy as others load it, with a card, and the proof that it answers as the checkpoint does.

The forms: a whole model for `from_pretrained`, an adapter for peft, a GGUF, and a GGUF with Ollama's Modelfile. All is
put together in a folder beside the target and takes its name at the end."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import dataclasses
import hashlib
import json
import os
import re
import shutil
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from codezero.config import NodeConfig
from codezero.environment import Environment
from codezero.environments.build import build_environment
from codezero.environments.tasks import TaskEnvironment
from codezero.errors import ConfigError, DiskFullError, ModelChoiceError, ModelError
from codezero.evals.figures import Difference, TaskOutcome, compare
from codezero.evals.grading import EvaluatorGrader, Grader, SandboxGrader
from codezero.evals.sets import HELD_OUT
from codezero.evals.task import task_of
from codezero.evaluator.base import ScoredEvaluator
from codezero.fitting import with_solver
from codezero.models.build import Say, load
from codezero.models.digest import Base, folder_of, weights_digest
from codezero.models.hardware import source_of
from codezero.monitor.hub import bare_name, model_card, stage
from codezero.monitor.report import headline
from codezero.monitor.run_state import History
from codezero.monitor.run_types import read_settings
from codezero.monitor.text import clean
from codezero.ops.gguf import check_convertible, greedy_answers, need, write_gguf
from codezero.ops.measure import Policy, find_policy, load_found
from codezero.sandbox.build import build_sandbox
from codezero.solver.checkpoint import read_manifest
from codezero.solver.policy_files import BASE
from codezero.system.files import lacks_room, read_bounded, write_atomic
from codezero.types import Completion

if TYPE_CHECKING:
    from codezero.models.load import LoadedModel

CARD, MODELFILE, MODEL_FILE = "README.md", "Modelfile", "model.gguf"
FILES = ("*.json", "*.jinja", "*.txt", "LICENSE*")  # copied beside the weights
SAME = 0.95  # share of texts that equal the checkpoint's, from which on an export without rounding holds
LICENSE_LINE = re.compile(r"^license:\s*[\"']?([\w.+-]{1,60})", re.MULTILINE)
OF_EXAM = (
    "solver.max_new_tokens",
    "answer.block",
    "evals.problems",
    "evals.samples",
    "evals.temperature",
    "evals.seed",
)
QUESTION = "What is asked?"


@dataclass(frozen=True, slots=True)
class ExportRequest:
    policy: str
    form: str  # merged, adapter, gguf or ollama
    target: Path
    quantize: str  # of a GGUF
    verify: int  # held-out problems; 0: none

    @property
    def has_gguf(self) -> bool:
        return self.form in ("gguf", "ollama")

    def file_in(self, out: Path) -> Path:
        """The weights of an export that lies there: a folder of them, or a GGUF."""
        return out / MODEL_FILE if self.form == "ollama" else out


class Verified(msgspec.Struct, frozen=True):
    """Greedy answers of the export beside those of the checkpoint, to the same held-out problems."""

    problems: int
    same_texts: int
    label: str  # executed or scored
    pass_1: Difference | None  # a: the checkpoint, b: the export; None: no attempt could be decided
    holds: bool

    @property
    def line(self) -> str:
        texts = f"{self.same_texts} of {self.problems} greedy answers are the checkpoint's, letter by letter"
        if self.pass_1 is None:
            return f"{texts}; no attempt could be decided"
        a, b, low, high = (100 * getattr(self.pass_1, name) for name in ("a", "b", "low", "high"))
        gain = f"{b - a:+.1f} points, 95 % [{low:+.1f}, {high:+.1f}]"
        return f"{texts}; {self.label} pass@1 {a:.1f} % of the checkpoint, {b:.1f} % of this, {gain}"


class Exported(msgspec.Struct, frozen=True):
    path: str
    form: str
    policy: str
    iteration: int | None  # None: a model that is of no run
    digest: str  # of the policy; see `weights_digest`
    export_digest: str  # the same of the export; of a GGUF the sha256
    bytes: int
    card: str
    verified: Verified | None

    def lines(self) -> list[str]:
        of = "" if self.iteration is None else f", iteration {self.iteration}"
        first = f"{self.path}: {self.policy}{of}, {self.bytes / (1 << 20):,.1f} MiB; {self.card} says what it is"
        proof = "not held against the checkpoint; --verify N does" if self.verified is None else self.verified.line
        return [first, proof if self.verified is None or self.verified.holds else f"NOT THE SAME: {proof}"]


def export(config: NodeConfig, request: ExportRequest, say: Say) -> Exported:
    """Raises ConfigError before anything is loaded where it can, then ModelError, CheckpointError, DiskFullError,
    SandboxError and EndpointError."""
    target = request.target
    card = target.with_name(f"{target.name}.md") if request.form == "gguf" else target / CARD
    if taken := next((path for path in (target, card) if path.exists()), None):
        raise ConfigError(f"{taken} is there already; name another, or remove it")
    if not target.parent.is_dir():
        raise ConfigError(f"{target.parent} is no folder; make it first")
    if config.model.quantize != "none":
        raise ConfigError(f"model.quantize={config.model.quantize}: an export has whole weights; drop it")
    if request.has_gguf and request.verify:
        need("xllamacpp", "--verify of a GGUF")
    environment = build_environment(config)
    config = with_solver(config, environment)
    policy = find_policy(config, request.policy)
    base = folder_of(source_of(policy.source, "solver"), (*FILES, CARD))
    if request.has_gguf:
        check_convertible(base, bare_name(policy.name), request.quantize)
    _check_room(target.parent, base, 2 if request.has_gguf and policy.adapter else 1)
    with _staged(target) as part:
        say(f"writing {target}")
        out = part / target.name
        _write(config, policy, request, base, part, say)
        verified = _verify(config, environment, policy, request, out, say) if request.verify else None
        exported = _describe(policy, request, out, card, verified)
        write_atomic(part / CARD if out.is_file() else out / CARD, _card(config, policy, request, exported, base))
        if out.is_file():
            os.replace(part / CARD, card)
        os.replace(out, target)
    return exported


def _write(config: NodeConfig, policy: Policy, request: ExportRequest, base: Path, part: Path, say: Say) -> None:
    """The export under its name in `part`, without a card."""
    out = part / request.target.name
    if request.form == "adapter":
        if policy.adapter is None:
            raise ConfigError(f"--adapter: {policy.name} holds whole weights, and no adapter; give --merged")
        stage(policy.adapter, out, "")
        digest = _base_digest(policy, policy.source)
        write_atomic(out / BASE, msgspec.json.encode(Base(bare_name(policy.source), digest)))
        return
    if request.form == "merged":
        _write_whole(config, policy, base, out, say)
        return
    whole = base if policy.adapter is None else part / "whole"
    if policy.adapter is not None:
        _write_whole(config, policy, base, whole, say)
    if request.form == "ollama":
        out.mkdir()
        (out / MODELFILE).write_text(modelfile(whole, config.evals.temperature))
    name = re.sub(r"[^\w.-]", "-", request.target.name.removesuffix(".gguf"))
    write_gguf(whole, request.file_in(out), name, request.quantize)


@contextmanager
def _staged(target: Path) -> Generator[Path]:
    """A folder beside it, gone at the end of the block."""
    part = target.with_name(f".{target.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)  # of a process that was killed
        part.mkdir()
        yield part
    except (OSError, SafetensorError) as error:
        kind = DiskFullError if lacks_room(error) else ConfigError
        raise kind(f"{target} cannot be written: {getattr(error, 'strerror', None) or error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _check_room(folder: Path, base: Path, times: int) -> None:
    needed, free = (
        times * sum(path.stat().st_size for path in base.glob("*.safetensors")),
        shutil.disk_usage(folder).free,
    )
    if free < needed:
        sizes = f"{free / (1 << 30):.1f} GiB are free, and it takes up to {needed / (1 << 30):.1f}"
        raise DiskFullError(f"{folder} has no room for the export: {sizes}; make room, or name another folder")


def _write_whole(config: NodeConfig, policy: Policy, base: Path, out: Path, say: Say) -> None:
    """Each file as the base has it; what the adapter changes is multiplied out and rounded once, to the base's own
    precision. Raises ModelError, CheckpointError, OSError and SafetensorError."""
    from codezero.models.load import adapted_layers, plain_weights

    out.mkdir()
    for path in (path for pattern in FILES for path in base.glob(pattern)):
        shutil.copyfile(path, out / path.name)
    shards = sorted(base.glob("*.safetensors"))
    if policy.adapter is None:
        for path in shards:
            shutil.copyfile(path, out / path.name)
        return
    model = load_found(config, policy, say).model
    left = {f"{name}.weight" for name in adapted_layers(model)}
    state = plain_weights(model)
    for path in shards:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in cast("list[str]", file.keys())}
        for name in left & tensors.keys():
            tensors[name] = state[name].to("cpu", tensors[name].dtype).contiguous()
        left -= tensors.keys()
        save_file(tensors, out / path.name, metadata={"format": "pt"})
    if left:
        raise ModelError(f"{policy.name} cannot be multiplied out: its base has no tensor {min(left)}; give --adapter")


def modelfile(folder: Path, temperature: float) -> str:
    """For Ollama, from a ChatML template; the system turn that it puts first by itself stays. Raises ModelError."""
    from codezero.models.load import load_tokenizer

    tokenizer = load_tokenizer(str(folder), "solver")
    turns = [{"role": "user", "content": QUESTION}]
    text = cast(str, tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
    user, answer = "<|im_start|>user\n{}<|im_end|>\n", "<|im_start|>assistant\n"
    system = re.fullmatch(
        r"(?:<\|im_start\|>system\n(.*)<\|im_end\|>\n)?", text.partition(user.format(QUESTION))[0], re.S
    )
    if system is None or not text.endswith(user.format(QUESTION) + answer) or '"""' in (system[1] or ""):
        raise ModelChoiceError("--ollama: the model's chat template is not ChatML; export --gguf, which has it inside")
    stops = dict.fromkeys(("<|im_end|>", "<|im_start|>", str(tokenizer.eos_token)))
    first = f'SYSTEM """{system[1]}"""\n' if system[1] else ""
    return f'''FROM ./{MODEL_FILE}
TEMPLATE """{{{{ if .System }}}}<|im_start|>system
{{{{ .System }}}}<|im_end|>
{{{{ end }}}}{{{{ if .Prompt }}}}{user.format("{{ .Prompt }}")}{{{{ end }}}}{answer}{{{{ .Response }}}}<|im_end|>
"""
{first}{"".join(f"PARAMETER stop {json.dumps(stop)}{chr(10)}" for stop in stops)}PARAMETER temperature {temperature:g}
'''


def _verify(
    config: NodeConfig, environment: Environment, policy: Policy, request: ExportRequest, out: Path, say: Say
) -> Verified:
    """Raises what loading, sampling and grading raise."""
    from codezero.models.generation import Sampler

    solver, problems = config.solver, environment.held_out(request.verify, config.evals.seed)
    tasks = [task_of(problem, environment.prompt) for problem in problems]
    prompts, most, longest = [task.prompt for task in tasks], solver.max_new_tokens, solver.max_prompt_tokens

    def sampled(loaded: "LoadedModel") -> list[Completion]:
        sizes: dict[str, Any] = {"max_new_tokens": most, "max_prompt_tokens": longest}
        groups = Sampler(loaded).sample(prompts, group_size=1, temperature=0.0, generator_seed=0, **sizes)
        return [group[0] for group in groups]

    say(f"answering {len(prompts)} held-out problems, greedily, with the checkpoint and with the export")
    first = sampled(load_found(config, policy, say))
    if request.form == "merged":
        second = sampled(load(config, str(out), "solver", say))
    elif request.form == "adapter":
        loaded = load(config, policy.source, "solver", say)
        loaded.model.load_adapter(str(out))
        second = sampled(loaded)
    else:
        second = greedy_answers(request.file_in(out), prompts, most, longest + most)
    with ExitStack() as stack:
        graders: list[Grader] = []
        if isinstance(environment, TaskEnvironment):
            graders.append(EvaluatorGrader(ScoredEvaluator(environment)))
        else:
            graders.append(SandboxGrader(build_sandbox(config, stack), config.answer.block))
        label = graders[0].label
        say("grading both")
        outcomes = [
            [TaskOutcome(task.name, (grade.passed,)) for task, (grade,) in zip(tasks, graded, strict=True)]
            for graded in (graders[0].grade(tasks, [[each] for each in answers]) for answers in (first, second))
        ]
    same = sum(a.text == b.text for a, b in zip(first, second, strict=True))
    pass_1 = compare(*outcomes, samples=1, label=label, seed=config.evals.seed)
    rounded = request.has_gguf and request.quantize != "f16"
    alike = pass_1 is None or pass_1.low <= 0 <= pass_1.high
    return Verified(len(tasks), same, label, pass_1, alike and (rounded or same >= SAME * len(tasks)))


def _describe(policy: Policy, request: ExportRequest, out: Path, card: Path, verified: Verified | None) -> Exported:
    folder = policy.adapter or Path(policy.source)
    iteration = read_manifest(folder.parents[1]).iteration if policy.run else None
    file = request.file_in(out)
    if file.is_file():
        with file.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
    else:
        digest = weights_digest(str(file))
    size = sum(path.stat().st_size for path in (out.iterdir() if out.is_dir() else [out]))
    return Exported(
        str(request.target), request.form, policy.name, iteration, policy.digest, digest, size, str(card), verified
    )


def _card(config: NodeConfig, policy: Policy, request: ExportRequest, exported: Exported, base: Path) -> str:
    """Write the hub's card of the run, and of the export."""
    title, solver = request.target.name, config.model.solver if policy.run else policy.source
    judge, again = "not measured", ""
    if policy.run is None:
        text = f"# {title}\n\n`{bare_name(solver)}` as it was given: it is of no run of codezero.\n"
    else:
        lines = {line.key: line.value for line in read_settings(policy.run).settings}
        fold, iteration = History(policy.run, budget=1 << 20).read(), exported.iteration or 0
        fold.exams[:] = [exam for exam in fold.exams if exam.iteration <= iteration]
        with suppress(ValueError, TypeError):
            mode, function = json.loads(lines["reward.mode"]), json.loads(lines["reward.function"])
            config = dataclasses.replace(
                config, reward=dataclasses.replace(config.reward, mode=mode, function=function)
            )
        model = dataclasses.replace(config.model, train="lora" if request.form == "adapter" else "full")
        hub = dataclasses.replace(config.hub, repository=title)
        text = model_card(dataclasses.replace(config, model=model, hub=hub), fold, iteration)
        again = "".join(f" {key}={lines[key]}" for key in OF_EXAM if key in lines)
        judge = (fold.exams[-1].ranks if fold.exams else "") or judge
        text += f"\nThe {headline(fold.exams)}.\n"
    inside = policy.name.partition("/")[2]
    subject = f"{policy.run.name}/checkpoints/{inside}" if policy.run else bare_name(policy.source)
    subject = title if request.form == "merged" else subject
    proof = "not held against the checkpoint" if exported.verified is None else exported.verified.line
    return f"""{text}
## This export

| | |
|---|---|
| form | {request.form}{f", {request.quantize}" if request.has_gguf else ""} |
| digest of the export | `{exported.export_digest}` |
| of | `{clean(bare_name(policy.name), 120)}`, digest `{policy.digest}` |
| base | `{clean(bare_name(solver), 120)}`, digest `{_base_digest(policy, solver) or "not read"}` |
| licence of the base | {_licence(base, solver)} |
| held against the checkpoint | {proof} |
| judge's skill at the last exam | {clean(judge, 200)} |

Measured again by: `codezero eval {HELD_OUT} --checkpoint {clean(subject, 120)}{clean(again, 400)}`
"""


def _base_digest(policy: Policy, solver: str) -> str:
    """Take it from the adapter, else read the base; empty for one on the hub, which may have to be fetched."""
    if policy.adapter is not None and (policy.adapter / BASE).exists():
        return msgspec.json.decode((policy.adapter / BASE).read_bytes(), type=Base).digest
    source = source_of(solver, "solver")
    return weights_digest(source) if Path(source).is_dir() or policy.adapter is not None else ""


def _licence(base: Path, solver: str) -> str:
    """Read it from the front matter of its card."""
    for folder in (Path(source_of(solver, "solver")), base):
        with suppress(OSError, ValueError):
            head, _, rest = read_bounded(folder / CARD, 1 << 20).decode(errors="replace").partition("\n---")
            if rest and head.startswith("---") and (match := LICENSE_LINE.search(head)):
                return match[1]
    return "not said by its card"
