"""An OpenAPI 3.1 document made of routes and of the msgspec types that they take and give. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

VERSION = "3.1.0"
JSON = "application/json"


class Problem(msgspec.Struct, frozen=True):
    """Why a request was not answered, in one line."""

    error: str


@dataclass(frozen=True)
class Parameter:
    """Of a path or a query. `kind` is a type as msgspec takes it."""

    name: str
    text: str
    kind: Any
    where: Literal["path", "query"] = "query"


@dataclass(frozen=True)
class Route:
    """One method of one path."""

    method: Literal["get", "post"]
    path: str
    text: str
    answer: Any
    """Type of the body; str for text that is not JSON."""
    media: str = JSON
    parameters: Sequence[Parameter] = ()
    body: Any = None
    """Type of the request's body, as JSON; None: it has none."""
    errors: Mapping[int, str] = field(default_factory=dict[int, str])
    """What each status of a refusal means. Its body is a Problem."""
    others: Mapping[int, tuple[str, Any]] = field(default_factory=dict[int, tuple[str, Any]])
    """Statuses with a body of another type, with their meaning."""
    token: bool = False
    """Only for programs with the bearer token."""


def document(routes: Sequence[Route], *, title: str, version: str, text: str) -> dict[str, Any]:
    """The whole document, as JSON takes it."""
    kinds = [kind for route in routes for kind in _kinds(route)]
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    given = iter(schemas)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method] = _operation(route, [next(given) for _ in _kinds(route)])
    return {
        "openapi": VERSION,
        "info": {"title": title, "version": version, "description": text},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "of node.token"}},
        },
    }


def _kinds(route: Route) -> list[Any]:
    """In the order in which `_operation` takes their schemas."""
    body = [] if route.body is None else [route.body]
    return [
        route.answer,
        Problem,
        *(one.kind for one in route.parameters),
        *body,
        *(kind for _, kind in route.others.values()),
    ]


def _operation(route: Route, schemas: Sequence[Any]) -> dict[str, Any]:
    answer, problem, *rest = schemas
    given = iter(rest)
    told: dict[str, Any] = {"summary": route.text}
    if route.parameters:
        told["parameters"] = [
            {
                "name": one.name,
                "in": one.where,
                "required": one.where == "path",
                "description": one.text,
                "schema": next(given),
            }
            for one in route.parameters
        ]
    if route.body is not None:
        told["requestBody"] = {"required": True, "content": {JSON: {"schema": next(given)}}}
    others = {status: (text, next(given)) for status, (text, _) in route.others.items()}
    answers = {200: _answer("as asked", route.media, answer)}
    answers |= {status: _answer(text, JSON, problem) for status, text in route.errors.items()}
    answers |= {status: _answer(text, JSON, schema) for status, (text, schema) in others.items()}
    told["responses"] = {str(status): answers[status] for status in sorted(answers)}
    if route.token:
        told["security"] = [{"token": []}]
    return told


def _answer(text: str, media: str, schema: Any) -> dict[str, Any]:
    return {"description": text, "content": {media: {"schema": schema}}}
