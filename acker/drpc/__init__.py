"""Linear DRPC: call a function whose steps are a line, and get the answer. See docs/lines.md.

Examples:
    >>> def split(row, out):
    ...     for word in row["args"].split():
    ...         out.emit({"word": word})
    >>> class Count:
    ...     def __init__(self, request):
    ...         self.words = 0
    ...     def execute(self, row):
    ...         self.words += 1
    ...     def finished(self, out):  # all words of the request have come
    ...         out.result(self.words)
    >>> count = LinearDRPC("count").step("split", split, columns={"word": pa.string()})
    >>> count = count.gather("sum", Count)
    >>> with count.work(topology):
    ...     topology.drpc("count").execute("the cow jumped")
    3
"""

from acker.drpc.calling.client import Client
from acker.drpc.linear_drpc import LinearDRPC
from acker.drpc.out import Out

__all__ = ["Client", "LinearDRPC", "Out"]
