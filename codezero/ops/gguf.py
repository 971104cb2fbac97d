"""A model's folder as one GGUF file, for llama.cpp and Ollama, and llama.cpp's server, which answers from such a file.

Names and quantisation are those of the package `gguf`, llama.cpp's own. The file is written tensor by tensor."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingModuleSource=false, reportAttributeAccessIssue=false

import http.client
import importlib.util
import math
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import numpy as np
import torch
from msgspec import Meta
from safetensors import safe_open

from codezero.errors import ConfigError, EndpointError, ModelChoiceError, translated
from codezero.models.openai_client import ChatAnswer
from codezero.system.child import Child, how_it_ended, python
from codezero.system.files import read_json
from codezero.system.signals import end_with_parent
from codezero.types import Completion

if TYPE_CHECKING:
    from gguf import GGUFWriter

Size = Annotated[int, Meta(ge=1, le=1 << 20)]
ARCHITECTURES = {"Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3", "LlamaForCausalLM": "llama"}
QUANTIZE = {"f16": "F16", "q8_0": "Q8_0", "q4_k_m": "Q4_K"}
_LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PRE_TOKENIZERS = {rf"{_LETTERS}\p{{N}}{_REST}": "qwen2", rf"{_LETTERS}\p{{N}}{{1,3}}{_REST}": "llama-bpe"}
WITH_LLAMA_CPP = "convert it with llama.cpp's convert_hf_to_gguf.py"
KEY = "CODEZERO_LLAMA_KEY"  # environment variable of the server's process: others on this machine ask in vain
LM_HEAD = ("lm_head.weight", True)  # left out where it is tied to the embedding, as llama.cpp ties them too
MAX_JSON, MAX_ANSWER = 64 << 20, 4 << 20
LOAD_SECONDS, ANSWER_SECONDS = 600.0, 1800.0


class Rope(msgspec.Struct, frozen=True):
    rope_theta: float | None = None
    rope_type: str | None = None
    type: str | None = None  # the old name of rope_type
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192


class ConfigFile(msgspec.Struct, frozen=True):
    """The fields read of config.json."""

    architectures: Annotated[list[str], Meta(min_length=1)]
    hidden_size: Size
    intermediate_size: Size
    num_hidden_layers: Annotated[int, Meta(ge=1, le=1000)]
    num_attention_heads: Size
    vocab_size: Annotated[int, Meta(ge=1, le=1 << 24)]
    rms_norm_eps: float
    max_position_embeddings: Annotated[int, Meta(ge=1)]
    num_key_value_heads: Size | None = None
    head_dim: Size | None = None
    hidden_act: str = "silu"
    tie_word_embeddings: bool = False
    use_sliding_window: bool = False
    rope_theta: float | None = None
    rope_scaling: Rope | None = None  # older files have it, and the theta beside it
    rope_parameters: Rope | None = None
    quantization_config: dict[str, Any] | None = None

    @property
    def rope(self) -> Rope:
        return self.rope_parameters or self.rope_scaling or Rope()

    @property
    def theta(self) -> float:
        return self.rope.rope_theta or self.rope_theta or 10_000.0

    @property
    def kv_heads(self) -> int:
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def width(self) -> int:
        """The numbers of a head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads


class _Splitter(msgspec.Struct, frozen=True):
    type: str = ""
    pattern: dict[str, str] = {}
    pretokenizers: list["_Splitter"] = []


class _Vocabulary(msgspec.Struct, frozen=True):
    type: str
    vocab: dict[str, int]


class _Added(msgspec.Struct, frozen=True):
    id: int
    content: str
    special: bool


class TokenizerFile(msgspec.Struct, frozen=True):
    """The fields read of tokenizer.json."""

    model: _Vocabulary
    added_tokens: list[_Added] = []
    pre_tokenizer: _Splitter | None = None


class Convertible(NamedTuple):
    """What `check_convertible` has read, and what llama.cpp calls the tokenizer's way of splitting a text."""

    shape: ConfigFile
    tokenizer: TokenizerFile
    pre: str


def need(package: str, what: str) -> None:
    """Raise ConfigError unless it is installed."""
    if importlib.util.find_spec(package) is None:
        raise ConfigError(f"{what}: {package} is not installed; run `uv sync --no-dev --extra gguf`, or drop it")


def check_convertible(folder: Path, name: str, quantize: str) -> Convertible:
    """Raises ModelChoiceError for a model, and ConfigError for a precision, that cannot be written, and why."""
    need("gguf", "--gguf and --ollama")
    if quantize not in QUANTIZE:
        raise ConfigError(f"--quantize={quantize}: choose one of: {', '.join(QUANTIZE)}")
    if quantize == "q4_k_m":
        way = "export f16 and run `llama-quantize FILE OUT q4_k_m`, which comes with llama.cpp"
        raise ConfigError(f"--quantize={quantize}: the package gguf has no quantiser for it; {way}")
    fault = f"{name} cannot be written as GGUF"
    with translated(ModelChoiceError, fault, OSError, ValueError):
        shape = read_json(folder / "config.json", ConfigFile, MAX_JSON)
        tokenizer = read_json(folder / "tokenizer.json", TokenizerFile, MAX_JSON)
    splitter = tokenizer.pre_tokenizer or _Splitter()
    patterns = [each.pattern.get("Regex", "") for each in (splitter, *splitter.pretokenizers) if each.type == "Split"]
    pre = next((PRE_TOKENIZERS[each] for each in patterns if each in PRE_TOKENIZERS), "")
    architecture, kind = shape.architectures[0], shape.rope.rope_type or shape.rope.type or "default"
    known = f"known are {', '.join(ARCHITECTURES)}"
    method = (shape.quantization_config or {}).get("quant_method", "")
    for wrong, what in (
        (shape.quantization_config is not None, f"its weights are quantised already ({method}); give the plain model"),
        (architecture not in ARCHITECTURES, f"its architecture is {architecture}, and {known}; {WITH_LLAMA_CPP}"),
        (kind not in ("default", "llama3"), f"its positions are stretched by {kind}; {WITH_LLAMA_CPP}"),
        (shape.use_sliding_window, f"it has a sliding window; {WITH_LLAMA_CPP}"),
        (shape.hidden_act != "silu", f"its activation is {shape.hidden_act}; {WITH_LLAMA_CPP}"),
        (tokenizer.model.type != "BPE" or not pre, f"its tokenizer is not Qwen's or Llama 3's; {WITH_LLAMA_CPP}"),
    ):
        if wrong:
            raise ModelChoiceError(f"{fault}: {what}")
    return Convertible(shape, tokenizer, pre)


def write_gguf(folder: Path, file: Path, name: str, quantize: str) -> None:
    """Raises what `check_convertible` raises, and OSError."""
    import gguf

    model = check_convertible(folder, name, quantize)
    architecture = ARCHITECTURES[model.shape.architectures[0]]
    fault = f"{name} cannot be written as GGUF"
    with translated(ModelChoiceError, fault, ValueError, KeyError, TypeError, ArithmeticError):
        writer = gguf.GGUFWriter(None, architecture)
        writer.add_name(name)
        writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{QUANTIZE[quantize]}"])
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        _add_shape(writer, model.shape)
        _add_tokenizer(writer, model, folder)
        names = {number: key for key, number in gguf.MODEL_ARCH_NAMES.items()}
        places = gguf.get_tensor_name_map(names[architecture], model.shape.num_hidden_layers)
        wanted = gguf.GGMLQuantizationType[QUANTIZE[quantize]]
        plan: list[tuple[Path, str, gguf.GGMLQuantizationType]] = []
        if factors := _rope_factors(model.shape):
            writer.add_tensor_info("rope_freqs.weight", [len(factors)], np.dtype(np.float32), 4 * len(factors))
        for shard in sorted(folder.glob("*.safetensors")):
            with safe_open(shard, "pt") as tensors:
                for key in tensors.keys():  # noqa: SIM118 - no mapping
                    if key.endswith("rotary_emb.inv_freq") or (key, model.shape.tie_word_embeddings) == LM_HEAD:
                        continue
                    if (place := places.get_name(key, (".weight", ".bias"))) is None:
                        raise ValueError(f"its tensor {key} has no place there; {WITH_LLAMA_CPP}")
                    size = tensors.get_slice(key).get_shape()
                    kind = _precision(size, wanted)
                    held = gguf.quant_shape_to_byte_shape(size, kind)
                    writer.add_tensor_info(place, held, np.dtype(np.uint8), math.prod(held), raw_dtype=kind)
                    plan.append((shard, key, kind))
        writer.write_header_to_file(file)
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        try:
            if factors:
                writer.write_tensor_data(np.array(factors, np.float32))
            for shard, key, kind in plan:
                with safe_open(shard, "pt") as tensors:
                    values = _arranged(tensors.get_tensor(key).to(torch.float32).numpy(), key, model.shape)
                writer.write_tensor_data(gguf.quantize(values, kind).view(np.uint8))
        finally:
            writer.close()


def _add_shape(writer: "GGUFWriter", shape: ConfigFile) -> None:
    writer.add_context_length(shape.max_position_embeddings)
    writer.add_embedding_length(shape.hidden_size)
    writer.add_block_count(shape.num_hidden_layers)
    writer.add_feed_forward_length(shape.intermediate_size)
    writer.add_head_count(shape.num_attention_heads)
    writer.add_head_count_kv(shape.kv_heads)
    for add in (writer.add_key_length, writer.add_value_length, writer.add_rope_dimension_count):
        add(shape.width)
    writer.add_rope_freq_base(shape.theta)
    writer.add_layer_norm_rms_eps(shape.rms_norm_eps)
    writer.add_vocab_size(shape.vocab_size)


def _add_tokenizer(writer: "GGUFWriter", model: Convertible, folder: Path) -> None:
    """Each id of the model has a token; one that the tokenizer has not is marked as unused."""
    import gguf

    size, added = model.shape.vocab_size, {token.id: token for token in model.tokenizer.added_tokens}
    tokens = {number: token for token, number in model.tokenizer.model.vocab.items()}
    tokens |= {number: token.content for number, token in added.items()}
    if tokens and not 0 <= min(tokens) <= max(tokens) < size:
        raise ValueError(f"its tokenizer has the id {max(tokens)}, and its vocabulary ends at {size}")

    kinds = gguf.TokenType

    def type_of(number: int) -> int:
        if token := added.get(number):
            return kinds.CONTROL if token.special else kinds.USER_DEFINED
        return kinds.NORMAL if number in tokens else kinds.UNUSED

    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(model.pre)
    writer.add_token_list([tokens.get(number, f"[PAD{number}]") for number in range(size)])
    writer.add_token_types([type_of(number) for number in range(size)])
    gguf.SpecialVocab(folder, load_merges=True, n_vocab=size).add_to_gguf(writer, quiet=True)


def _precision(size: Sequence[int], wanted: Any) -> Any:
    """Norms and biases stay float32; a row that blocks do not divide is float16, as llama.cpp's converter has it."""
    import gguf

    if len(size) == 1:
        return gguf.GGMLQuantizationType.F32
    whole = size[-1] % gguf.GGML_QUANT_SIZES[wanted][0] == 0
    return wanted if whole else gguf.GGMLQuantizationType.F16


def _arranged(values: np.ndarray, key: str, shape: ConfigFile) -> np.ndarray:
    """Llama's queries and keys in the order of llama.cpp, which turns neighbours where transformers turns halves."""
    match = re.search(r"\.self_attn\.([qk])_proj\.", key)
    if match is None or shape.architectures[0] != "LlamaForCausalLM":
        return values
    heads = shape.num_attention_heads if match[1] == "q" else shape.kv_heads
    halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))


def _rope_factors(shape: ConfigFile) -> list[float]:
    """Divisors of the frequencies by Llama 3.1's rule; none for other models."""
    rope = shape.rope
    if "llama3" not in (rope.rope_type, rope.type):
        return []
    factors = list[float]()
    for at in range(0, shape.width, 2):
        turns = rope.original_max_position_embeddings / (2 * math.pi * shape.theta ** (at / shape.width))
        share = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
        share = min(1.0, max(0.0, share))
        factors.append(1 / ((1 - share) / rope.factor + share))
    return factors


@contextmanager
def llama_server(file: Path, tokens: int) -> Generator[tuple[str, str]]:
    """The address, and the key, of llama.cpp's server with this model and so large a context, until the block ends. It
    is a process of its own: what llama.cpp cannot read ends it. Raises ConfigError and EndpointError."""
    need("xllamacpp", "--verify of a GGUF")
    key = secrets.token_hex(16)
    with ExitStack() as stack:
        errors = stack.enter_context(tempfile.TemporaryFile())
        command = python("-m", "codezero.ops.gguf", str(file), str(tokens))
        options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": errors, "env": os.environ | {KEY: key}}
        child = stack.enter_context(Child(command, **options))
        assert child.stdout is not None
        timer = threading.Timer(LOAD_SECONDS, child.kill)
        stack.callback(timer.cancel)
        timer.start()
        address = child.stdout.readline(256).decode(errors="replace").strip()
        timer.cancel()
        if not re.fullmatch(r"http://127\.0\.0\.1:\d{1,5}", address):
            raise EndpointError(f"llama.cpp {how_it_ended(child.close(), errors)}, loading {file.name}")
        yield address.removeprefix("http://"), key


def greedy_answers(file: Path, prompts: Sequence[str], max_new_tokens: int, room: int) -> list[Completion]:
    """One to each user's turn, through the file's own chat template. room: tokens of prompt and answer together. Raises
    ConfigError and EndpointError."""
    answers: list[Completion] = []
    with llama_server(file, room) as (address, key):
        line = http.client.HTTPConnection(address, timeout=ANSWER_SECONDS)
        head = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        for prompt in prompts:
            turn = {"messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": max_new_tokens}
            with translated(EndpointError, "llama.cpp did not answer", OSError, http.client.HTTPException, ValueError):
                line.request("POST", "/v1/chat/completions", msgspec.json.encode(turn), head)
                response = line.getresponse()
                body = response.read(MAX_ANSWER)
                if response.status != 200:
                    raise ValueError(f"HTTP {response.status}: {body[:200].decode(errors='replace')}")
                (choice,) = msgspec.json.decode(body, type=ChatAnswer).choices
            answers.append(Completion(choice.message.content or "", (), (), choice.finish_reason == "stop"))
        line.close()
    return answers


def main(file: str, tokens: str) -> None:
    """Serve the file on loopback, and print where, until a signal."""
    end_with_parent()
    import xllamacpp

    settings: Any = xllamacpp.CommonParams()
    settings.model.path, settings.n_ctx, settings.api_keys = file, int(tokens), [os.environ.pop(KEY)]
    settings.hostnames, settings.port = ["127.0.0.1"], 0
    server: Any = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
