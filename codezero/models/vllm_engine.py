"""vLLM as the decoder, in this process, with its own copy of the policy's weights. An optional extra.

The engine is built from the policy's directory and takes a fixed share of the device's memory. Before each draw the
policy's weights are pushed into it; the tensors are handed over as they are, never pickled.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingImports=false

import hashlib
import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from codezero.errors import ConfigError, ModelError
from codezero.models.device import memory_of
from codezero.models.digest import place_of
from codezero.models.generation import Drawn
from codezero.models.load import LoadedModel, first_line
from codezero.models.lora import plain_weights

COLDEST = 0.01
"""vLLM silently raises lower temperatures to this one."""
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # tensors are not sent to another process
    "VLLM_NO_USAGE_STATS": "1",  # a node tells nobody what it runs
}
DEFAULTS = {
    "VLLM_CONFIGURE_LOGGING": "0",  # what it says goes where everything goes
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # the learner works on the same cores
}
PROBE = range(32)
"""Token ids that engine and policy both score after each push."""
APART = {torch.float32: 1e-2}
"""Nats a token between the two, in the mean, that only other weights explain; 0.5 with fewer bits. Measured: 1e-6 and
0.04; 0.5 to 1.1 with a tied head that a push had not reached."""
PUSHED = "after its weights were pushed: they did not arrive; set model.backend=own, and please report it"
MOVED = 1e-2
"""Nats by which the policy's score of one token changes, and an engine that has its weights cannot answer as before."""


class VllmLoop:
    """A `Backend`. `close` frees the engine's memory."""

    def __init__(self, loaded: LoadedModel, *, memory_share: float):
        """`memory_share`: of the device's memory, for the engine's weights, keys and values. Raises ConfigError."""
        self.loaded = loaded
        self._scores: tuple[Tensor, Tensor] | None = None
        """Of PROBE, by engine and policy, when the engine's last changed."""
        self._apart = APART.get(loaded.model.dtype, 0.5)
        self._engine: Any = _engine(loaded, memory_share)

    def draw(
        self, prompts: Sequence[Sequence[int]], repeats: int, max_new_tokens: int, temperature: float, seed: int
    ) -> list[Drawn]:
        """Raises ConfigError for a temperature that vLLM would raise, ModelError where a push does not arrive."""
        if temperature < COLDEST:
            raise ConfigError(
                f"model.backend=vllm samples at {COLDEST} or warmer, not at {temperature:g}; set model.backend=own"
            )
        if not prompts:
            return []
        from vllm import SamplingParams

        self._push()
        inputs = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        settings = requests(len(prompts), repeats, max_new_tokens, temperature, seed, self.loaded.stop_ids)
        answers = self._engine.generate(inputs, [SamplingParams(**request) for request in settings], use_tqdm=False)
        return [drawn(output) for answer in answers for output in sorted(answer.outputs, key=lambda each: each.index)]

    def close(self) -> None:
        self._engine.llm_engine.engine_core.shutdown()

    def _push(self) -> None:
        """The policy's weights into the engine."""
        with torch.no_grad():
            weights = iter(plain_weights(self.loaded.model).items())
            self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        self._engine.reset_prefix_cache()  # of the weights before
        self._check_arrival()
        # a cached prompt is computed in another order, which for the same seed may end in another token
        self._engine.reset_prefix_cache()

    def _check_arrival(self) -> None:
        """Of the push: through log-probabilities, as an engine may keep weights in a form of its own.

        Raises ModelError where engine and policy differ, or the policy has moved and the engine has not.
        """
        from vllm import SamplingParams

        ids = torch.tensor([*PROBE], device=self.loaded.device)
        settings = SamplingParams(max_tokens=1, prompt_logprobs=0, detokenize=False)
        (answer,) = self._engine.generate([{"prompt_token_ids": [*PROBE]}], [settings], use_tqdm=False)
        engine = torch.tensor([answer.prompt_logprobs[at][PROBE[at]].logprob for at in range(1, len(PROBE))])
        with torch.no_grad():
            logits = self.loaded.model(input_ids=ids[None]).logits[0, :-1].float()
        policy = logits.log_softmax(-1).gather(-1, ids[1:, None])[:, 0].cpu()
        apart = float((engine - policy).abs().mean())
        if not apart <= self._apart:
            raise ModelError(f"vLLM's engine is {apart:.2g} nats a token from the policy {PUSHED}")
        if self._scores is None or not torch.equal(engine, self._scores[0]):
            self._scores = engine, policy
        elif float((policy - self._scores[1]).abs().max()) > MOVED:
            raise ModelError(f"vLLM's engine answers as before, though the policy has changed, {PUSHED}")


def requests(
    prompts: int, repeats: int, max_new_tokens: int, temperature: float, seed: int, stop_ids: Sequence[int]
) -> list[dict[str, Any]]:
    """One request for each prompt, as arguments of `vllm.SamplingParams`.

    The engine gives the draws of one prompt the seeds s, s + 1, ...; so s is far from those of other prompts.
    """
    same = {
        "n": repeats,
        "max_tokens": max_new_tokens,
        "temperature": temperature,
        "top_p": 1.0,
        "top_k": 0,
        "logprobs": 0,  # of the chosen token, and no others
        "ignore_eos": True,  # what the engine takes for EOS; ours are listed
        "stop_token_ids": list(stop_ids),
        "detokenize": False,
    }
    seeds = [hashlib.sha256(f"{seed} {at}".encode()).digest()[:6] for at in range(prompts)]
    return [same | {"seed": int.from_bytes(digest)} for digest in seeds]


def drawn(output: Any) -> Drawn:
    """One of an answer's outputs: ids, the stop included, and their log-probabilities."""
    ids = [int(token) for token in output.token_ids]
    return ids, [float(at[token].logprob) for token, at in zip(ids, output.logprobs, strict=True)]


def _keys_and_values(loaded: LoadedModel, memory_share: float) -> dict[str, int]:
    """On a CPU the rest of its share after its weights, in bytes. There the engine would subtract the learner's memory
    too; on a card it measures its own."""
    if loaded.device.type != "cpu":
        return {}
    weights = sum(weight.numel() * weight.element_size() for weight in loaded.model.parameters())
    left = int(memory_share * memory_of(loaded.device).total) - weights
    if left <= 0:
        raise ConfigError(
            f"model.backend=vllm: its share of the memory is {memory_share:.2g} and does not hold the solver's "
            f"{weights / 2**30:.3g} GiB of weights; raise model.backend_share, or set model.backend=own"
        )
    return {"kv_cache_memory_bytes": left}


def _engine(loaded: LoadedModel, memory_share: float) -> Any:
    """Raises ConfigError with the first line of vLLM's own error."""
    os.environ |= {**DEFAULTS, **os.environ, **ENVIRONMENT}
    from vllm import LLM
    from vllm.platforms import current_platform

    if current_platform.device_type != loaded.device.type:
        raise ConfigError(
            f"model.backend=vllm: this vLLM is built for {current_platform.device_type or 'no device here'} and the "
            f"solver is on {loaded.device.type}; set model.backend=own, or install the vLLM for it"
        )
    try:
        return LLM(
            model=place_of(loaded.name),
            dtype=str(loaded.model.dtype).removeprefix("torch."),
            load_format="safetensors",
            trust_remote_code=False,
            generation_config="vllm",  # no sampling settings of the model's own
            logprobs_mode="processed_logprobs",  # after the temperature
            max_model_len=-1,  # as many tokens as its memory holds, and the model was made for
            gpu_memory_utilization=memory_share,
            **_keys_and_values(loaded, memory_share),
            enforce_eager=True,
            use_tqdm_on_load=False,
            disable_log_stats=True,
        )
    except (ValueError, RuntimeError, NotImplementedError, OSError, ImportError) as error:
        raise ConfigError(
            f"model.backend=vllm: vLLM cannot run {loaded.name}: {first_line(error)}; set model.backend=own, or "
            "change model.backend_share where memory is what it lacks"
        ) from error
