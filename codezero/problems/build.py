"""Config -> the problems of a node."""

from codezero.config import NodeConfig
from codezero.config.learning import source_weights
from codezero.environment import Environment
from codezero.models.build import Say
from codezero.nano import NANO
from codezero.problems.filters import Fits, Novelty
from codezero.problems.stream import SYNTHETIC, MixedStream
from codezero.types import REHEARSAL


def build_stream(
    config: NodeConfig, environment: Environment, peer_id: str, withheld: Novelty, say: Say, fits: Fits
) -> MixedStream:
    """The sources' problems; prints what they are and what stands in for them. Raises ProblemError.

    withheld: what no problem may be like. fits: whether the solver's context holds a problem."""
    batch = config.solver.problems_per_iteration
    stream = MixedStream(
        environment, config.data, seed=config.seed, peer_id=peer_id, batch=batch, fits=fits, withheld=withheld
    )
    weights = source_weights(config.data.sources)
    if list(weights) != [SYNTHETIC]:
        say("looking for the problems")
        stand_ins = stream.probe()
        little = "; these teach a real model little"
        too_easy = stand_ins.startswith(REHEARSAL) and config.model.solver != NANO
        print(f"codezero: problems: {stand_ins or ', '.join(weights)}{little if too_easy else ''}", flush=True)
    return stream
