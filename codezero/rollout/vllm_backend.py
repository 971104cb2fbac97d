"""The engine by which a vLLM server takes published weights. vLLM finds `register` by the entry point of this package's
metadata.

The host copy follows the source, and the engine loads all of it anew: a patch costs vLLM a whole tensor as well, fails
half-way where weights are packed away (float32 on a CPU), and leaves nothing to begin again from."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

import os
from dataclasses import dataclass
from typing import Any

import torch
from vllm.distributed.weight_transfer.base import WeightTransferEngine
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from codezero.models.load import checkpoint_shapes
from codezero.weights import SOURCE, TOKEN
from codezero.weights.delta import Layout
from codezero.weights.versions import HostCopy, VersionSource


def register() -> None:
    """May be called again."""
    if "codezero" not in WeightTransferEngineFactory._registry:  # pyright: ignore[reportPrivateUsage]
        WeightTransferEngineFactory.register_engine("codezero", FollowingEngine)


@dataclass
class NoInfo:
    """The source is of the server's own environment, and no request names one."""


@dataclass
class AnnouncedVersion:
    number: int
    state: str


class FollowingEngine(WeightTransferEngine):
    """Raises WeightsError before the model is touched; after another error only a later update makes it whole."""

    init_info_cls, update_info_cls = NoInfo, AnnouncedVersion
    supports_draft_weight_update = False

    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        source = VersionSource(os.environ[SOURCE], os.environ.get(TOKEN, ""))
        self._copy = HostCopy(source, Layout(checkpoint_shapes(self.model_config.hf_config)))

    def init_transfer_engine(self, init_info: NoInfo) -> None: ...

    def start_weight_update(self) -> None: ...

    def finish_weight_update(self) -> None: ...

    def shutdown(self) -> None: ...

    def update_weights(self, update_info: dict[str, Any]) -> None:
        self.receive_weights(self.parse_update_info(update_info))
        if self.device.type != "cpu":
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: AnnouncedVersion) -> None:
        tensors = self._copy.reach(update_info.number, update_info.state).tensors()
        initialize_layerwise_reload(self.model)
        self.model.load_weights(iter(tensors.items()))
        finalize_layerwise_reload(self.model, self.model_config)
        head = getattr(self.model, "lm_head", None)
        if self.device.type == "cpu" and head is not None and self.model_config.hf_config.tie_word_embeddings:
            head.quant_method.process_weights_after_loading(head)  # packed apart, and no reload packs it anew
