"""Keys of functions (acker/drpc).

Terms: an anchor is the number of a tree.
"""

LISTED = b"acker:{acker:functions}:listed:"
"""Prefix of strings beside them, with a time to live: when a function was listed (list_function.lua)."""


def named(topology: str) -> bytes:
    """String: when a stream or a line was named last (forget_names.lua). It has a time to live."""
    return f"acker:{{{topology}}}:named".encode()


class Function:
    """The keys of a function (acker/drpc): all in the slot of its spout."""

    __slots__ = ("_prefix", "answers", "calls", "counted", "deadlines", "removals")

    def __init__(self, topology: str, function: str) -> None:
        self._prefix = prefix = f"acker:{{{topology}@{function}}}:".encode()
        self.calls = prefix + b"calls"
        """Hash: unanswered request -> its caller, and the time of its begin (lua/drpc/begin_call.lua)."""
        self.deadlines = prefix + b"deadlines"
        """Sorted set: request -> its deadline (ms)."""
        self.answers = prefix + b"answers"
        """Stream: the latest answered requests. It lives as long as the last answer."""
        self.counted = prefix + b"counted"
        """Hash: counts of calls by their result, in all and lately (lua/drpc/answer_call.lua)."""
        self.removals = prefix + b"removals"
        """String: as `acker.store.keys.Spout.removals`, of the function's spout."""

    def answer(self, request: str) -> bytes:
        """String: the answer to a request. It has a time to live."""
        return self._prefix + b"answer:" + request.encode()

    def withdrawn(self, caller: str) -> bytes:
        """String: calls were taken from a caller (lua/drpc/withdraw_calls.lua). It has a time to live."""
        return self._prefix + b"withdrawn:" + caller.encode()

    def given(self, staged_id: str) -> bytes:
        """Hash: results staged for a commit, by anchor. It has a time to live."""
        return self._prefix + b"given:" + staged_id.encode()

    def result(self, anchor: str) -> bytes:
        """String: the result of a request, by the anchor of its last tree. It has a time to live."""
        return self._prefix + b"result:" + anchor.encode()
