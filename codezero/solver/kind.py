"""Of which kind a policy is: what a checkpoint has to agree with before its weights are read."""

# pyright: reportUnknownMemberType=false

from codezero.models.load import LoadedModel
from codezero.solver.manifest import Kind


def kind_of(policy: LoadedModel) -> Kind:
    """Every parameter of the model as it is trained, frozen ones and an adapter's included."""
    shapes = {name: tuple(parameter.shape) for name, parameter in policy.model.named_parameters()}
    return Kind(policy.tokenizer_digest, shapes)
