"""Tests of your own bolts and steps, on a real store.

There are fixtures for pytest, `run_bolt` for the bolt of a Spark job, and `Transport` for steps of external
streams.

In a `conftest.py`:

    pytest_plugins = ["acker.testing"]

The fixtures are `acker_url` and `acker_topology`; they need the server of acker's extra `embedded`.
`run_bolt` needs no fixture but your Spark session, and no pytest. `Transport` needs neither.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from acker.collectors.topology import Topology
from acker.embedded import EmbeddedServer
from acker.testing.groups import Drained
from acker.testing.stamped import FailedRow, Stamped
from acker.testing.transport import Transport

if TYPE_CHECKING:
    from pytest import fixture  # noqa: PT013 - it may be another thing, below

    from acker.spark.run_bolt import BoltResult, Failed, run_bolt
else:
    try:
        from pytest import fixture  # noqa: PT013
    except ModuleNotFoundError:  # tests by unittest have no use for fixtures

        def fixture(function):
            return function


__all__ = [
    "BoltResult",
    "Drained",
    "Failed",
    "FailedRow",
    "Stamped",
    "Transport",
    "acker_topology",
    "acker_url",
    "run_bolt",
]


@fixture
def acker_url() -> Iterator[str]:
    """The URL of an empty store, a server of the test's own that keeps nothing on the disk."""
    with EmbeddedServer(append_only=False) as server:
        yield server.url


@fixture
def acker_topology(acker_url: str) -> Iterator[Topology]:
    """The topology "test" in the store of `acker_url`, for spouts and bolts in plain Python.

    Only `acker_topology.tick(force=True)` ticks it; three such ticks let a tree expire.
    """
    with Topology(acker_url, "test", ackers=1) as topology:
        yield topology


def __getattr__(name: str) -> Any:
    # These names need Spark, and pytest loads all names that `dir` shows: tests of plain Python lack Spark.
    if name not in ("BoltResult", "Failed", "run_bolt"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module("acker.spark.run_bolt"), name)
    return value
