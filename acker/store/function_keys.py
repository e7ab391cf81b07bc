"""The keys of functions that are called."""


class Function:
    """The keys of a function that is called (acker/drpc): all in one slot, that of its spout."""

    __slots__ = ("_prefix", "answers", "calls", "counted", "deadlines")

    def __init__(self, topology: str, function: str) -> None:
        self._prefix = prefix = f"acker:{{{topology}@{function}}}:".encode()
        self.calls = prefix + b"calls"
        """Hash: request -> who has begun it, and when, of those without answer (lua/drpc/call.lua)."""
        self.deadlines = prefix + b"deadlines"
        """Sorted set: request -> until when it is to be answered (ms)."""
        self.answers = prefix + b"answers"
        """Stream: the requests that were answered last."""
        self.counted = prefix + b"counted"
        """Hash: what became of calls, altogether and of late (lua/drpc/answer.lua)."""

    def answer(self, request: str) -> bytes:
        """String: the answer to a request. It has a time to live."""
        return self._prefix + b"answer:" + request.encode()

    def given(self, token: str) -> bytes:
        """Hash: results that are staged for a commit, by anchor. It has a time to live."""
        return self._prefix + b"given:" + token.encode()

    def result(self, anchor: str) -> bytes:
        """String: the result of a request whose last tree has that anchor. It has a time to live."""
        return self._prefix + b"result:" + anchor.encode()
