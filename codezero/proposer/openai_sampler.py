"""A proposer behind an OpenAI-compatible endpoint: prompts out, proposals back, one deadline for all of them.

The response is constrained to the schema where the server knows `response_format`; one that refuses it is asked
without. No field of a response is believed but the text. What was not answered is an empty text, which no parser takes.
"""

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Unpack

import msgspec

from codezero.config import ProposerConfig
from codezero.errors import EndpointError, ProposalError
from codezero.models.base import GroupSampler, How
from codezero.models.openai_client import ChatAnswer, EndpointClient, EndpointRequest, InvalidResponse, decode
from codezero.types import Completion

logger = logging.getLogger(__name__)

SCHEMA = {
    "type": "object",
    "properties": {
        "question": {"type": "string"},
        "tests": {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 16},
    },
    "required": ["question", "tests"],
    "additionalProperties": False,
}
_FORMAT = {"type": "json_schema", "json_schema": {"name": "problem", "strict": True, "schema": SCHEMA}}


class OpenAISampler(GroupSampler, AbstractContextManager["OpenAISampler"]):
    """Samples without token ids and log-probs, which a proposal does not need. Raises
    ConfigError for an address or a key (CODEZERO_PROPOSER_KEY) that cannot be used; sends nothing yet."""

    def __init__(self, config: ProposerConfig) -> None:
        self._model, self._constrained = config.model, True
        self._client = EndpointClient[Completion](
            "proposer", "proposer", config.url, requests=4, seconds=config.seconds
        )

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def sample(self, prompts: Sequence[str], **how: Unpack[How]) -> list[list[Completion]]:
        """`group_size` answers to each prompt, in order; the server may or may not honour the seed. max_prompt_tokens:
        left to the server. ended: called when all are there. Raises ProposalError when nothing was answered, or is
        expected to be."""
        client = self._client
        if client.pause:
            raise ProposalError(f"the proposer at {client.url} {client.failure}; next try in {client.pause:.0f} s")
        size, seed = how["group_size"], how["generator_seed"]
        common = {"model": self._model, "max_tokens": how["max_new_tokens"], "temperature": how["temperature"]}
        rows = [
            {"messages": [{"role": "user", "content": prompt}], "seed": (seed + place) % 2**31, **common}
            for place, prompt in enumerate(prompt for prompt in prompts for _ in range(size))
        ]
        while True:
            form: dict[str, object] = {"response_format": _FORMAT} if self._constrained else {}
            answers = client.ask(
                [EndpointRequest("/v1/chat/completions", msgspec.json.encode(row | form), _parse) for row in rows]
            )
            failures = [answer for answer in answers.values() if isinstance(answer, EndpointError)]
            if len(failures) < len(answers) or not answers:
                break
            if client.failure is not None or not self._constrained:
                raise ProposalError(f"the proposer at {client.url} {client.failure or failures[0]}") from failures[0]
            self._constrained = False  # it is alive, and rejects all of them
            logger.info("the proposer at %s constrains no output; what it writes is parsed", client.url)
        nothing = Completion("", (), (), False)
        completions = [nothing if isinstance(answer, EndpointError) else answer for answer in answers.values()]
        groups = [completions[at : at + size] for at in range(0, len(rows), size)]
        if ended := how.get("ended"):
            for at, group in enumerate(groups):
                ended(at, group)
        return groups


def _parse(body: bytes) -> Completion:
    """The first choice's text, fenced as a proposal is; constrained output comes without. Raises InvalidResponse."""
    choice = decode(body, ChatAnswer).choices[0]
    if choice.message.content is None:
        raise InvalidResponse("no text")
    text = choice.message.content.strip()
    bare = text.startswith("{") and text.endswith("}")
    return Completion(f"```json\n{text}\n```" if bare else text, (), (), choice.finish_reason == "stop")
