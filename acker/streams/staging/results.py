"""Results of functions (`acker.drpc`): the last step stages them, and its commit applies them once.

Terms: a tree is all that comes of one record; an anchor is the number of a tree; staged rows are stored, but
nobody sees them before a commit.
"""

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
"""The value in place of two results of a request (lua/streams/staging/keep_results.lua). No JSON is empty."""
_PIECE_BYTES, _PIECE = 4 << 20, 256
_KNOWN = 1_024
_known: dict[str, list[str]] = {}
"""The anchors of results that this process has staged lately, by id."""


def staged_key(core: Core, function: str, staged_id: str) -> bytes:
    """The key of staged results."""
    return function_keys.Function(core.config.name, function).given(staged_id)


def of_rows(batches: Sequence[pa.RecordBatch]) -> dict[int, str]:
    """The results that rows give, by anchor; rows without one give none."""
    results: dict[int, str] = {}
    for batch in batches:
        pairs = zip(batch.column(ANCHORS).to_pylist(), batch.column(RESULT).to_pylist(), strict=True)
        for anchor, result in pairs:
            if anchor:
                results[anchor] = TWICE if anchor in results else result
    return results


def stage(
    core: Core,
    function: str,
    results: Mapping[int, str],
    ttl: int,
    keep: int,
    into: list[Request] | None = None,
) -> Operation[tuple[tuple[str, str, int], ...]]:
    """Stages results (JSON) by the anchor of their request's last tree; returns their names for a commit.

    ttl: seconds for which staged results wait for their commit; keep: seconds for which a result waits for
    its answer. into: gets the requests; None: they are sent.
    """
    pieces: list[dict[str, str]] = []
    size = _PIECE_BYTES
    for anchor, result in results.items():
        if size >= _PIECE_BYTES or len(pieces[-1]) >= _PIECE:
            pieces.append({})
            size = 0
        pieces[-1][str(anchor)] = result
        size += len(result)
    names = [(function, segments.new_hex_id(), keep) for _ in pieces]
    requests = list[Request]()
    for (_, staged_id, _), piece in zip(names, pieces, strict=True):
        requests.append(scripts.stage(staged_key(core, function, staged_id), ttl, piece))
        if len(_known) >= _KNOWN:
            _known.clear()
        _known[staged_id] = list(piece)
    if into is None:
        yield requests
    else:
        into += requests
    return tuple(names)


def read_anchors(
    core: Core, staged_results: Sequence[tuple[str, str, int]]
) -> Operation[dict[str, list[str]]]:
    """The anchors of staged results, by id.

    Results that this process has staged lately are not read.
    """
    anchors = noted_of(staged_results)
    asked = [(function, staged_id) for function, staged_id, _ in staged_results if staged_id not in anchors]
    replies = (yield [command("HKEYS", staged_key(core, *one)) for one in asked]) if asked else []
    for (_, staged_id), names in zip(asked, replies, strict=True):
        anchors[staged_id] = [name.decode("utf-8", "replace") for name in names]
    return anchors


def noted_of(staged_results: Sequence[tuple[str, str, int]]) -> dict[str, list[str]]:
    """The anchors of results that this process has staged lately, by id."""
    return {
        staged_id: anchors
        for _, staged_id, _ in staged_results
        if (anchors := _known.get(staged_id)) is not None
    }


def keep_requests(
    core: Core, staged_results: Sequence[tuple[str, str, int]], anchors: Mapping[str, Sequence[str]]
) -> list[Request]:
    """Requests that apply results; the same again changes nothing.

    A second result of a request spoils the first. anchors: from `read_anchors`.
    """
    requests = list[Request]()
    for function, staged_id, keep in staged_results:
        keys_of_function, names = function_keys.Function(core.config.name, function), anchors[staged_id]
        if names:
            results = [keys_of_function.result(anchor) for anchor in names]
            requests.append(scripts.keep_results(keys_of_function.given(staged_id), results, keep, names))
    return requests


def read_given(core: Core, staged_results: Sequence[tuple[str, str, int]]) -> Operation[list[int]]:
    """The anchors of staged results."""
    keys = [staged_key(core, function, staged_id) for function, staged_id, _ in staged_results]
    found = (yield [command("HKEYS", key) for key in keys]) if keys else []
    return [int(anchor) for names in found for anchor in names]
