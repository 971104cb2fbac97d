"""Of which kind a policy is: what a checkpoint has to agree with before its weights are read."""

# pyright: reportUnknownMemberType=false

from codezero.models.load import LoadedModel
from codezero.solver.manifest import Kind


def kind_of(policy: LoadedModel, proposer: LoadedModel | None = None) -> Kind:
    """Every parameter of the models as they are trained, frozen ones and an adapter's included.

    proposer: where that learns too; so a run neither loses what it learned nor takes on what was never saved.
    """
    shapes = {name: tuple(parameter.shape) for name, parameter in policy.model.named_parameters()}
    if proposer is not None:
        also = proposer.model.named_parameters()
        shapes |= {f"proposer.{name}": tuple(parameter.shape) for name, parameter in also}
    return Kind(policy.tokenizer_digest, shapes)
