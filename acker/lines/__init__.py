"""Lines: know when a step has seen everything of a request (Storm's CoordinatedBolt), in Spark and Python.

See docs/lines.md.
"""

from acker.lines.definition import Gather
from acker.lines.emitting import Out
from acker.lines.line import Line
from acker.lines.steps import Request, WorkOptions

__all__ = ["Gather", "Line", "Out", "Request", "WorkOptions"]
