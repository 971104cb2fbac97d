"""The knobs of pushing what was learned to the Hugging Face Hub. Imports nothing heavy; `config.py` has the others."""

import re
from dataclasses import dataclass

from codezero.config_model import bounded

REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)


@dataclass(kw_only=True)
class HubConfig:
    """Pushing the policy, with a card of the run's own figures. It never delays or stops the training."""

    repository: str = ""
    """OWNER/NAME on the hub; made when it is not there. Empty: nothing is pushed."""
    every: int = bounded(10, ge=1, le=1_000_000)
    """Rounds from one push to the next."""
    private: bool = True
    """May only its owner read it? A repository that is public already is then refused, not written to."""
    token_file: str = ""
    """File that nobody else may read, with a token that may write there; empty: see the next."""
    token_variable: str = "HF_TOKEN"
    """Name of the environment variable with the token. Tokens that the hub's own tools saved are neither read nor
    changed."""
    seconds: float = bounded(600.0, gt=0, le=86_400)
    """Deadline of one push."""
