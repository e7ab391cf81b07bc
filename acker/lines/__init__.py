"""Lines: know when a step has seen everything of a request (Storm's CoordinatedBolt), in Spark and Python.

See docs/lines.md.
"""

from acker.lines.definition import Gather
from acker.lines.line import Line
from acker.lines.steps import Out, Request, WorkOptions

__all__ = ["Gather", "Line", "Out", "Request", "WorkOptions"]
