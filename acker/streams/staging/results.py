"""Results of functions (`acker.drpc`): staged by the last step, they take effect with its commit, once."""

from collections.abc import Mapping, Sequence

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.ledger.calls.core import Core
from acker.store import function_keys
from acker.store.operation import Operation, Request, command
from acker.streams.log import segments
from acker.streams.log.segments import ANCHORS
from acker.streams.staging import scripts

RESULT = "result"
"""Column of rows that give results: JSON."""
TWICE = ""
"""In place of a result: there were two (lua/streams/staging/give_results.lua). No JSON is empty."""
_PIECE_BYTES, _PIECE = 4 << 20, 256
_KNOWN = 1_024
_known: dict[str, list[str]] = {}
"""The anchors of what this process has staged of late, by token."""


def staged(core: Core, function: str, token: str) -> bytes:
    """Where results are staged."""
    return function_keys.Function(core.config.name, function).given(token)


def of_rows(batches: Sequence[pa.RecordBatch]) -> dict[int, str]:
    """The results that rows give, by anchor; rows without one give none."""
    found: dict[int, str] = {}
    for one in batches:
        pairs = zip(one.column(ANCHORS).to_pylist(), one.column(RESULT).to_pylist(), strict=True)
        for anchor, result in pairs:
            if anchor:
                found[anchor] = TWICE if anchor in found else result
    return found


def stage(
    core: Core,
    function: str,
    found: Mapping[int, str],
    ttl: int,
    keep: int,
    into: list[Request] | None = None,
) -> Operation[tuple[tuple[str, str, int], ...]]:
    """Stages results (JSON) by the anchor of their request's last tree; returns what a commit names.

    ttl: seconds for which what is staged waits for its commit; keep: and a result for its answer. into: gets
    the requests; None: they are sent.
    """
    pieces: list[dict[str, str]] = []
    size = _PIECE_BYTES
    for anchor, result in found.items():
        if size >= _PIECE_BYTES or len(pieces[-1]) >= _PIECE:
            pieces.append({})
            size = 0
        pieces[-1][str(anchor)] = result
        size += len(result)
    made = [(function, segments.new_token(), keep) for _ in pieces]
    requests = list[Request]()
    for (_, token, _), piece in zip(made, pieces, strict=True):
        requests.append(scripts.stage(staged(core, function, token), ttl, piece))
        if len(_known) >= _KNOWN:
            _known.clear()
        _known[token] = list(piece)
    if into is None:
        yield requests
    else:
        into += requests
    return tuple(made)


def look(core: Core, what: Sequence[tuple[str, str, int]]) -> Operation[dict[str, list[str]]]:
    """The anchors of results that were staged, by token.

    Nobody asks for what this process has staged of late.
    """
    found = noted_of(what)
    asked = [(function, token) for function, token, _ in what if token not in found]
    replies = (yield [command("HKEYS", staged(core, *one)) for one in asked]) if asked else []
    for (_, token), names in zip(asked, replies, strict=True):
        found[token] = [name.decode("utf-8", "replace") for name in names]
    return found


def noted_of(what: Sequence[tuple[str, str, int]]) -> dict[str, list[str]]:
    """The anchors of results that this process has staged of late, by token."""
    return {token: anchors for _, token, _ in what if (anchors := _known.get(token)) is not None}


def giving(
    core: Core, what: Sequence[tuple[str, str, int]], anchors: Mapping[str, Sequence[str]]
) -> list[Request]:
    """Requests that have results take effect; the same again changes nothing.

    A second one of a request spoils the first. anchors: of `look`.
    """
    found = list[Request]()
    for function, token, keep in what:
        own, names = function_keys.Function(core.config.name, function), anchors[token]
        if names:
            results = [own.result(anchor) for anchor in names]
            found.append(scripts.give_results(own.given(token), results, keep, names))
    return found


def given(core: Core, what: Sequence[tuple[str, str, int]]) -> Operation[list[int]]:
    """The anchors of results that were staged."""
    keys = [staged(core, function, token) for function, token, _ in what]
    found = (yield [command("HKEYS", key) for key in keys]) if keys else []
    return [int(anchor) for names in found for anchor in names]
