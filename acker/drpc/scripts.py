"""The scripts of calls and answers as functions (as in acker/ledger/calls/scripts.py)."""

from collections.abc import Sequence

from acker.ledger.settings.config import TopologyConfig
from acker.ledger.settings.topologies import REMEMBERED
from acker.store import function_keys, keys
from acker.store.function_keys import Function
from acker.store.keys import Stream
from acker.store.operation import Request, Word, script
from acker.streams.log.kinds import Seen

MOST_ANSWERS = 10_000
"""Most answers that callers learn at once; older ones they learn within a second."""
VALID = 300
"""Seconds for which the begin of a call is carried out: half as long as an answer is kept, at least.

So no late copy of it begins a call whose answer is forgotten.
"""


def begin_call(
    config: TopologyConfig,
    function: Function,
    request: str,
    caller: str,
    time: int,
    most: int,
    seen: tuple[bytes, int],
) -> Request:
    """Begins a call. seen: the removals as the caller has read them; the time (ms) until which it counts."""
    own = [function.calls, function.deadlines, function.answer(request), function.removals]
    own.append(function.withdrawn(caller))
    return script("begin_call", own, [request, caller, time, most, *seen], config.wait)


def check_caller(function: Function, caller: str, requests: Sequence[str]) -> Request:
    """Checks that calls still belong to a caller."""
    return script("check_caller", [function.calls], [caller, *requests])


def withdraw_calls(
    config: TopologyConfig, function: Function, caller: str, forget: bool, requests: Sequence[str]
) -> Request:
    """Takes calls from their caller, or forgets them."""
    own = [function.calls, function.deadlines, function.withdrawn(caller)]
    return script("withdraw_calls", own, [caller, int(forget), 2 * VALID, *requests], config.wait)


def answer_call(
    config: TopologyConfig,
    function: Function,
    request: str,
    anchor: str,
    answer: str,
    cause: str,
    ttl: int,
    without: tuple[str, str],
    sure: bool,
    begun: bytes,
) -> Request:
    """Answers a request.

    without: the answers for no result, and for two results. begun: the record of the call (begin_call.lua).
    """
    of_call = [
        function.calls,
        function.deadlines,
        function.answers,
        function.answer(request),
        function.result(anchor),
        function.counted,
    ]
    return script(
        "answer_call",
        of_call,
        [request, answer, ttl, MOST_ANSWERS, *without, cause, int(sure), begun],
        config.wait,
    )


def list_function(name: str, description: str, seen: tuple[bytes, int], ttl: int) -> Request:
    """Puts a function on the list of functions; or takes it off, with an empty description.

    seen: the mark beside the list as the caller has read it, and the time (ms) until which the call counts.
    """
    args: list[Word] = [name, description, *seen, ttl, function_keys.LISTED + name.encode()]
    return script("list_function", [keys.FUNCTIONS], args)


def check_version(stream: Stream, version: str) -> Request:
    """Checks that the steps that read a stream have a version of their function."""
    return script("check_version", [stream.subscriptions], [version])


def set_version(stream: Stream, version: str, before: bytes, seen: Seen) -> Request:
    """Records the function's version, or none, with a stream of its steps. before: the one that was read."""
    own = [stream.subscriptions, stream.removals]
    return script("set_version", own, [version, before, seen.removals, seen.until, REMEMBERED])
