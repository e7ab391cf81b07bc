"""Lines: tell a step when it has seen all rows of a request (Storm's CoordinatedBolt), in Spark and Python.

See docs/lines.md.
"""

from acker.lines.gather import Gather
from acker.lines.line import Line
from acker.workers.out import Out
from acker.workers.request import Request
from acker.workers.work_options import WorkOptions

__all__ = ["Gather", "Line", "Out", "Request", "WorkOptions"]
