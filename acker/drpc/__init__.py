"""Linear DRPC: ask a function that steps of a line work out, and get the answer. See docs/drpc.md."""

from acker.drpc.client import Client
from acker.drpc.function import LinearDRPC
from acker.drpc.steps import Out

__all__ = ["Client", "LinearDRPC", "Out"]
