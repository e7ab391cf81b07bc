"""Errors as answers: problem details (RFC 9457)."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote_to_bytes

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Match

from acker.errors import (
    AckerError,
    DRPCFailed,
    DRPCFull,
    DRPCTimeout,
    KeyConflict,
    MissingRights,
    SpoutInUse,
    SpoutsFull,
    StampsExpired,
    StoreMisconfigured,
    StoreUnavailable,
    StreamFull,
    StreamKindError,
    StreamLost,
    SubscriptionInUse,
    TooLarge,
    TopologyConfigError,
    TopologyInUse,
    UnknownDeadLetter,
    UnknownFunction,
    UnknownSpout,
    UnknownStream,
    UnknownSubscription,
    UnknownTopology,
    ValidationError,
    WritersFull,
    shown,
)
from api.fields import EXPECTED

MEDIA_TYPE = "application/problem+json"
_MOST_ERRORS = 20
_PROBLEMS = {
    400: ("The body is no text.", "bad-request"),
    401: ("No token, or one that is not accepted.", "unauthorized"),
    403: (
        "The token does not allow this, or the request comes from another site.",
        "read-only calls-only no-tokens other-site unknown-host",
    ),
    404: (
        "There is no such thing.",
        "unknown-topology unknown-cursor unknown-dead-letter unknown-function unknown-line "
        "unknown-confirmation "
        "unknown-request unknown-shard unknown-spout unknown-stream unknown-subscription "
        "unknown-tree",
    ),
    409: (
        "It contradicts the stored state.",
        "topology-in-use spout-in-use contradiction key-conflict other-configuration too-many-spouts "
        "unsupported-setting stream-kind stream-lost stamps-expired "
        "subscription-in-use",
    ),
    413: ("The body is too large.", "body-too-large"),
    422: ("The request is not what this schema says.", "invalid-request drpc-failed"),
    429: (
        "Too many requests, or too many event streams.",
        "too-many-reads too-many-writes too-many-streams drpc-full",
    ),
    500: ("The service failed.", "internal-error"),
    502: ("The store refused a command.", "store-error"),
    503: (
        "The store is away, or set up so that it cannot keep its promises. Try again.",
        "store-unavailable store-misconfigured missing-rights writers-full no-workers",
    ),
    504: ("The time of the call is over.", "drpc-timeout"),
    507: (
        "A bound of an external stream is reached; a part may have taken effect. Send the same again.",
        "stream-full",
    ),
}
"""For each status its description and its kinds of problems; the first one stands for it in examples."""
_STATUSES = {kind: status for status, (_, kinds) in _PROBLEMS.items() for kind in kinds.split()}
_ERRORS: tuple[tuple[type[AckerError], str], ...] = (
    (TooLarge, "body-too-large"),
    (UnknownDeadLetter, "unknown-dead-letter"),
    (UnknownFunction, "unknown-function"),
    (UnknownSpout, "unknown-spout"),
    (UnknownStream, "unknown-stream"),
    (UnknownSubscription, "unknown-subscription"),
    (UnknownTopology, "unknown-topology"),
    (ValidationError, "invalid-request"),
    (TopologyInUse, "topology-in-use"),
    (SpoutInUse, "spout-in-use"),
    (SpoutsFull, "too-many-spouts"),
    (KeyConflict, "key-conflict"),
    (StreamKindError, "stream-kind"),
    (StreamLost, "stream-lost"),
    (StampsExpired, "stamps-expired"),
    (StreamFull, "stream-full"),
    (SubscriptionInUse, "subscription-in-use"),
    (DRPCFailed, "drpc-failed"),
    (DRPCFull, "drpc-full"),
    (DRPCTimeout, "drpc-timeout"),
    (StoreUnavailable, "store-unavailable"),
    (StoreMisconfigured, "store-misconfigured"),
    (MissingRights, "missing-rights"),
    (WritersFull, "writers-full"),
)
"""The kind of problem of an error: the first one that it is of."""
_PASSING = (429, 503, 507)
"""Statuses that are worth another try of the same request."""

_log = logging.getLogger(__name__)


class Violation(BaseModel):
    """A fault of a request."""

    location: list[str | int] = Field(examples=[["query", "limit"]])
    detail: str = Field(examples=["Input should be less than or equal to 1000"])


class Problem(BaseModel):
    """A problem (RFC 9457)."""

    type: str = Field(description="Names the kind of problem.", examples=["urn:acker:unknown-topology"])
    title: str = Field(examples=["Not Found"])
    status: int = Field(ge=400, le=599, examples=[404])
    detail: str = Field(examples=["the store holds no topology 'wordcount'"])
    errors: list[Violation] | None = Field(
        default=None, description="What is wrong with the request, in detail."
    )


class Refused(HTTPException):
    """A request that is refused: a kind of problem, which has its status."""

    def __init__(
        self,
        kind: str,
        detail: str,
        headers: Mapping[str, str] | None = None,
        errors: list[Violation] | None = None,
    ) -> None:
        super().__init__(_STATUSES[kind], detail, dict(headers or {}))
        self.kind, self.errors = kind, errors

    def response(self) -> Response:
        """The answer that says so."""
        return answer(self.status_code, self.kind, self.detail, headers=self.headers, errors=self.errors)


def differs(error: TopologyConfigError) -> Refused:
    """Returns the refusal of settings that differ from the topology's settings."""
    violations = [
        Violation(location=["body", name], detail=f"stored is {stored!r}, asked for is {asked!r}")
        for name, (stored, asked) in error.differences.items()
    ]
    return Refused("other-configuration", str(error), errors=violations)


@contextmanager
def known_cursor() -> Iterator[None]:
    """Refuses by 404 a cursor that no page of the same query gave; other values are refused as they are."""
    try:
        yield
    except ValidationError as error:
        if not str(error).startswith("cursor"):
            raise
        detail = "cursor: expected one that a page of the same query gave"
        raise Refused("unknown-cursor", detail) from error


def answer(
    status: int,
    kind: str,
    detail: str,
    *,
    errors: list[Violation] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A problem as a response."""
    problem = Problem(
        type=f"urn:acker:{kind}", title=HTTPStatus(status).phrase, status=status, detail=detail, errors=errors
    )
    return JSONResponse(
        problem.model_dump(exclude_none=True), status, headers=dict(headers or {}), media_type=MEDIA_TYPE
    )


def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return error.response()


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = HTTPStatus(error.status_code).phrase.lower().replace(" ", "-")
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # The router names the methods of the first route of the path only.
        headers["Allow"] = ", ".join(_methods(request))
    return answer(error.status_code, kind, str(error.detail), headers=headers)


def _methods(request: Request) -> list[str]:
    """The methods that the path of a request has."""
    methods = [
        method
        for method in ("DELETE", "GET", "PATCH", "POST", "PUT")
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in request.app.routes
        )
    ]
    return sorted([*methods, "HEAD"]) if "GET" in methods else methods


def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [Violation(location=list(one["loc"]), detail=_said(one)) for one in error.errors()[:_MOST_ERRORS]]
    return answer(422, "invalid-request", "the request is not what the schema says", errors=found)


def _said(fault: Mapping[str, Any]) -> str:
    """The fault of a value, for people: a pattern stands there in words."""
    pattern = fault.get("ctx", {}).get("pattern")
    expected = EXPECTED.get(pattern)
    return str(fault["msg"]) if expected is None else f"expected {expected}, got {shown(fault['input'])}"


def _acker(request: Request, error: Exception) -> Response:
    kind = next((kind for of, kind in _ERRORS if isinstance(error, of)), "store-error")
    if kind == "store-error":
        _log.error("%s %s: %s", request.method, request.url.path, error)
    status = _STATUSES[kind]
    return answer(status, kind, str(error), headers={"Retry-After": "1"} if status in _PASSING else None)


def broken(method: str, path: str, error: Exception) -> Response:
    """The answer to a request on which the service failed; the log says why."""
    _log.error("%s %.200r failed", method, path, exc_info=error)
    return answer(500, "internal-error", "the service failed; its log says why")


def check_query(request: Request) -> None:
    """Raises RequestValidationError for query parameters of a route that has none; others check their own.

    And for bytes that are no UTF-8: a name of other bytes would be looked for in their place.
    """
    try:
        unquote_to_bytes(request.scope["query_string"]).decode()
    except UnicodeDecodeError as error:
        what = {"loc": ("query",), "msg": "expected UTF-8; a message id of other bytes goes as base64"}
        raise RequestValidationError([what]) from error
    route = request.scope["route"]
    unknown = [] if route.dependant.query_params else list(request.query_params)
    if unknown:
        raise RequestValidationError(
            [{"loc": ("query", name), "msg": "Extra inputs are not permitted"} for name in unknown]
        )


def handle(app: FastAPI) -> None:
    """Makes an app answer errors as problems."""
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(AckerError, _acker)


_RETRY = {
    "Retry-After": {
        "description": "Seconds to wait.",
        "schema": {"type": "integer", "minimum": 0},
        "required": True,
    }
}
_CHALLENGE = {
    "WWW-Authenticate": {"description": "The scheme: Bearer.", "schema": {"type": "string"}, "required": True}
}


def declared(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Problems for the `responses` of a route, with the problems that every route has."""
    responses: dict[int | str, dict[str, Any]] = {}
    with_body = {400} if 413 in statuses else set()
    for status in sorted({401, 403, 422, 429, 502, 503, *statuses, *with_body}):
        description, kinds = _PROBLEMS[status]
        example = {
            "type": f"urn:acker:{kinds.split()[0]}",
            "title": HTTPStatus(status).phrase,
            "status": status,
            "detail": description,
        }
        responses[status] = {
            "description": description,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}, "example": example}},
        }
        if status in _PASSING:
            responses[status]["headers"] = _RETRY
        if status == 401:
            responses[status]["headers"] = _CHALLENGE
    return responses
