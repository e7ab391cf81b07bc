"""Linear DRPC: ask a function that steps of a line work out, and get the answer. See docs/drpc.md."""

from acker.drpc.client import Client
from acker.drpc.linear_drpc import LinearDRPC
from acker.drpc.out import Out

__all__ = ["Client", "LinearDRPC", "Out"]
