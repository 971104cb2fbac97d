"""The knobs of who writes new problems. Imports nothing heavy; `config.py` has all the others."""

from dataclasses import dataclass

from codezero.config_model import bounded


@dataclass(kw_only=True)
class ProposerConfig:
    """Who writes new problems."""

    kind: str = bounded("local", one_of=("local", "openai"))
    """local: in this process. openai: an OpenAI-compatible endpoint (vLLM and others), constrained where it can be."""
    model: str = "nano"
    """`nano` (embedded), a directory, a Hugging Face id, or `off`; for an endpoint the name it serves."""
    url: str = ""
    """Base address of the endpoint; a key for it comes from CODEZERO_PROPOSER_KEY."""
    seconds: float = bounded(60.0, gt=0, le=3600)
    """Deadline of one try at an endpoint."""
    requests: int = bounded(4, ge=1, le=256)
    """Requests under way at an endpoint at once."""
    taken: int = bounded(12, ge=0, le=64)
    """Names of the last problems that are shown as taken, and refused when they come again; 0: none."""
    problems_per_iteration: int = bounded(2, ge=0, le=64)
    every: int = bounded(4, ge=1)
    """Propose each this many iterations."""
    rest_seconds: float = bounded(15.0, ge=0, le=3600)
    """With role=proposer: from the beginning of one iteration to that of the next."""
    max_new_tokens: int = bounded(256, ge=16, le=8192)
    temperature: float = bounded(1.0, gt=0, le=2)
    attempts: int = bounded(2, ge=1, le=16)
    """Tries for one problem before it is left out this time; with `train` one."""
    vetting: int = bounded(4, ge=0, le=64)
    """The solver's attempts at an own problem before it is offered: it is dropped when the judge, or execution with
    reward.mode=rlvr, finds its tests contradicted. 0: offered unseen. A judge that is never shown tests cannot tell."""
    structured: str = bounded("auto", one_of=("auto", "off"))
    """auto: a model in this process is held to the form of a proposal where its tokenizer allows that, and an endpoint
    is asked for it. off: what is written is only parsed, as it is in any case. A model that learns (`train`) is never
    held to a form: what it draws has to be its own."""
    train: bool = False
    """Does it learn to write problems that teach the solver most? For a model in this process; `model.train` says
    whether all of it learns or an adapter. A checkpoint goes on only with the same choice."""
    group_size: int = bounded(8, ge=2, le=32)
    """K: with `train`, proposals sampled for each level asked for, which are compared with each other."""
    wait: int = bounded(8, ge=1, le=1000)
    """With `train`, iterations until a group is learned from though not all its proposals were attempted."""
    learning_rate: float = bounded(1e-4, gt=0, le=0.1)
    """With `train`."""
    kl_beta: float = bounded(0.01, ge=0, le=10)
    """With `train`, weight of the KL leash to the initial model; 0: none is loaded."""
