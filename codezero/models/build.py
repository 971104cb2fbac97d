"""Config -> models: whence each is loaded, and which serve several roles."""

import dataclasses
import logging
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from codezero.config import NodeConfig
from codezero.models.base import Progress
from codezero.models.hardware import check_extras, source_of
from codezero.nano import NANO
from codezero.types import Problem

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from codezero.models.load import LoadedModel

logger = logging.getLogger(__name__)

Say = Callable[[str], None]  # tells a person what takes its time


def load(
    config: NodeConfig, name: str, role: str, say: Say, *, for_training: bool = False, scores: bool = False
) -> "LoadedModel":
    """`nano`, a directory or a hub id; the solver decides about CPU threads. scores: a reward model. Raises
    ModelError."""
    say(f"loading the {role}, {name}")
    from codezero.models.load import load_model, use_threads

    check_extras(config)
    model, path = config.model, source_of(name, role)
    nf4 = model.quantize == "nf4" and not for_training
    loaded = load_model(
        path,
        device=model.device,
        precision=model.precision,
        role=role,
        for_training=for_training,
        nf4=nf4,
        thinking=model.thinking if role == "solver" else "auto",
        scores=scores,
    )
    logger.info("%s: %s on %s", role, name, loaded.device)
    if role == "solver" or model.solver == NANO:  # a judge alone is as tiny as the solver that is not loaded
        use_threads(loaded.model, model.threads)
    return loaded


class FrozenModels:
    """Models that never learn, each loaded once for all roles that read it, one after another and never at once."""

    def __init__(
        self, config: NodeConfig, say: Say, policy: "LoadedModel | None" = None, read: Progress = lambda done, of: None
    ) -> None:
        """`policy`: where it learns through an adapter, its base serves too, with the adapter switched off. `read`:
        called as the judge reads."""
        self._config, self.say, self.read = config, say, read
        self._loaded: list[LoadedModel] = []
        if policy is not None and policy.base is not None:
            policy.model.eval()
            self._loaded.append(dataclasses.replace(policy, adapter_off=True))

    def load(self, name: str, role: str) -> "LoadedModel":
        """Raises ModelError and ConfigError."""
        from codezero.models.digest import same_place

        place = same_place(source_of(name, role))
        for loaded in self._loaded:
            if same_place(loaded.name) == place:
                logger.info("%s: %s, which is in memory already", role, name)
                return loaded
        self._loaded.append(load(self._config, name, role, self.say))
        return self._loaded[-1]


def fits_context(config: NodeConfig, prompt: Callable[[Problem], str]) -> Callable[[Problem], bool]:
    """The test that the solver's context holds a problem; the first call loads its tokenizer, or raises ModelError."""

    @cache
    def tokenizer() -> "PreTrainedTokenizerBase":
        from codezero.models.load import load_tokenizer

        return load_tokenizer(source_of(config.model.solver, "solver"), "solver")

    def fits(problem: Problem) -> bool:
        from codezero.models.chat import encode_prompts

        most = config.solver.max_prompt_tokens
        return len(encode_prompts(tokenizer(), [prompt(problem)], most + 1)[0]) <= most

    return fits
