"""The routes of the data API, as its document describes them. What they do is in `api.py`."""

from typing import Annotated, Any

from msgspec import Meta

from codezero.monitor.openapi import Parameter, Route
from codezero.monitor.prometheus import CONTENT_TYPE
from codezero.monitor.reader import KEY
from codezero.monitor.run_types import Health, Leaderboard, Rollout, RolloutPage, Runs, RunView

MAX_LIMIT = 100
DEFAULT_LIMIT = 50
MAX_ID = 2**53 - 1
PEER = "[1-9A-HJ-NP-Za-km-z]{1,128}"

Key = Annotated[str, Meta(pattern=f"^{KEY}$")]
Id = Annotated[int, Meta(ge=1, le=MAX_ID)]

RUN = Parameter("run", "as GET /api/runs names it", Key, "path")
GUARDED = {
    401: "somebody owns this node; log in, or send the bearer token",
    403: "asked by a page of another site",
    421: "asked by another name than localhost",
}
UNREADABLE = {503: "a file of the run cannot be read just now"}
BAD = {400: "a part of the address is not as described"}
UNKNOWN = {404: "there is no such run"}

ROUTES = (
    Route("get", "/api/runs", "All runs, the one written last first.", Runs, errors=GUARDED | BAD | UNREADABLE),
    Route(
        "get",
        "/api/runs/{run}",
        "What is known of a run.",
        RunView,
        parameters=[RUN],
        errors=GUARDED | BAD | UNKNOWN | UNREADABLE,
    ),
    Route(
        "get",
        "/api/runs/{run}/events",
        "The same as server-sent events named `view`: at once, and at most once a second whenever it changed.",
        str,
        media="text/event-stream",
        parameters=[RUN],
        errors=GUARDED | BAD | UNKNOWN | {503: "too many streams are open, or a file cannot be read just now"},
    ),
    Route(
        "get",
        "/api/runs/{run}/rollouts",
        "Judged groups of attempts, a sample of the newest, without the attempts.",
        RolloutPage,
        parameters=[
            RUN,
            Parameter("before", "only groups with a lower id", Id),
            Parameter("limit", f"how many; {DEFAULT_LIMIT} when left out", Annotated[int, Meta(ge=1, le=MAX_LIMIT)]),
            Parameter("peer", "only those of this peer", Annotated[str, Meta(pattern=f"^{PEER}$")]),
            Parameter("mine", "only own ones, or only those of others", bool),
        ],
        errors=GUARDED | BAD | UNKNOWN | UNREADABLE,
    ),
    Route(
        "get",
        "/api/runs/{run}/rollouts/{id}",
        "One group with its attempts and verdicts. Their text is as peers and models wrote it: show it as text.",
        Rollout,
        parameters=[RUN, Parameter("id", "as in the list", Id, "path")],
        errors=GUARDED | BAD | UNREADABLE | {404: "there is no such run, or no such group in it any more"},
    ),
    Route(
        "get",
        "/api/runs/{run}/leaderboard",
        "Who earned what, as the chain says.",
        Leaderboard,
        parameters=[RUN],
        errors=GUARDED | BAD | UNKNOWN | UNREADABLE,
    ),
    Route(
        "get",
        "/healthz",
        "Does what is meant to learn still learn?",
        Health,
        errors={400: BAD[400], 421: GUARDED[421]},
        others={503: ("not healthy; the body says why", Health)},
    ),
    Route(
        "get",
        "/metrics",
        "Of running nodes, and the run that was written last, as Prometheus reads it.",
        str,
        media=CONTENT_TYPE,
        errors={400: BAD[400], 421: GUARDED[421]} | UNREADABLE,
    ),
    Route(
        "get",
        "/openapi.json",
        "This document.",
        dict[str, Any],
        errors={400: BAD[400], 421: GUARDED[421]},
    ),
)
