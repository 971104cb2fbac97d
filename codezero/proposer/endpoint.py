"""A proposer behind an OpenAI-compatible endpoint: prompts out, proposals back, one deadline for all of them.

The answer is constrained to the schema where the server can do that (vLLM, and others that know `response_format`);
one that refuses it is asked without, and what it writes is parsed all the same. Answers are hostile: bounded bytes,
no field is believed but the text. What was not answered is an empty text, which no parser accepts.
"""

import logging
from collections.abc import Sequence
from typing import Self

import msgspec

from codezero.errors import EndpointError, ProposalError
from codezero.models.remote import Ask, Breaker, Endpoint, Nonsense, Part, Refused
from codezero.types import Completion

logger = logging.getLogger(__name__)

PROPOSER = Part("proposer", "proposer", "CODEZERO_PROPOSER_KEY")
PATH = "/v1/chat/completions"
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


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice]


class EndpointSampler:
    """Implements `protocols.GroupSampler` without token ids and log-probs, which a proposal does not need.

    seconds: deadline of one call. requests: most under way at once. structured: ask for constrained output. Raises
    ConfigError for an address or a key that cannot be used; asks nothing yet. `close` ends its thread and connections.
    """

    def __init__(self, url: str, model: str, *, seconds: float, requests: int, structured: bool = True) -> None:
        self._model = model
        self._seconds = seconds
        self._endpoint = Endpoint[Completion](PROPOSER, url, requests)
        self._breaker = Breaker()
        self._why_down: EndpointError | None = None
        self._constrained = structured

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """May be called twice."""
        self._endpoint.close()

    def sample(
        self,
        prompts: Sequence[str],
        *,
        group_size: int,
        max_new_tokens: int,
        temperature: float,
        generator_seed: int,
        max_prompt_tokens: int | None = None,
    ) -> list[list[Completion]]:
        """`group_size` answers to each prompt, in order; the server may or may not honour the seed.

        max_prompt_tokens: left to the server. Raises ProposalError when nothing was answered, or is expected to be.
        """
        if self._breaker.left:
            raise ProposalError(f"{self._named(self._why_down)}; next try in {self._breaker.left:.0f} s")
        rows = [prompt for prompt in prompts for _ in range(group_size)]
        seeds = [(generator_seed + place) % 2**31 for place in range(len(rows))]
        answers = self._ask(rows, seeds, max_new_tokens, temperature)
        completions = [Completion("", (), (), False) if isinstance(one, EndpointError) else one for one in answers]
        return [completions[at : at + group_size] for at in range(0, len(rows), group_size)]

    def _ask(
        self, rows: Sequence[str], seeds: Sequence[int], max_new_tokens: int, temperature: float
    ) -> list[Completion | EndpointError]:
        """One answer for each row. Raises ProposalError when there is none at all."""
        late = EndpointError(f"did not answer in {self._seconds:g} s; start it, or raise proposer.seconds")
        while True:
            asks = [
                Ask(PATH, self._body(row, seed, max_new_tokens, temperature), _read)
                for row, seed in zip(rows, seeds, strict=True)
            ]
            told = self._endpoint.ask(asks, self._seconds)
            answers = [told.get(ask, late) for ask in asks]
            failures = [one for one in answers if isinstance(one, EndpointError)]
            lives = len(failures) < len(answers) or any(isinstance(one, Refused) for one in failures)
            self._breaker.record(lives)
            if len(failures) < len(answers) or not answers:
                return answers
            if not (self._constrained and lives):
                self._why_down = failures[0]
                raise ProposalError(self._named(failures[0])) from failures[0]
            self._constrained = False
            logger.info("the proposer at %s constrains no output; what it writes is parsed", self._endpoint.url)

    def _body(self, prompt: str, seed: int, max_new_tokens: int, temperature: float) -> bytes:
        asked: dict[str, object] = {
            "model": self._model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": max_new_tokens,
            "temperature": temperature,
            "seed": seed,
        }
        return msgspec.json.encode(asked | ({"response_format": _FORMAT} if self._constrained else {}))

    def _named(self, why: EndpointError | None) -> str:
        return f"the proposer at {self._endpoint.url} {why}"


def _read(body: bytes) -> Completion:
    """The text of the first choice, in the fence that a proposal has; constrained output comes without. Raises
    Nonsense."""
    try:
        choices = msgspec.json.decode(body, type=_Answer).choices
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Nonsense("not the JSON that was asked for") from error
    if not choices or choices[0].message.content is None:
        raise Nonsense("no text")
    text = choices[0].message.content.strip()
    bare = text.startswith("{") and text.endswith("}")
    return Completion(f"```json\n{text}\n```" if bare else text, (), (), choices[0].finish_reason == "stop")
