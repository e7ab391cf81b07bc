"""Tests of your own bolts, on a real store: fixtures for pytest, and `run_bolt` for the bolt of a Spark job.

In a `conftest.py`:

    pytest_plugins = ["acker.testing"]

The fixtures are `acker_url` and `acker_topology`; they need the server of acker's extra `embedded`.
`run_bolt` needs no fixture but your Spark session, and no pytest.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from acker.collectors.topology import Topology
from acker.embedded import EmbeddedServer

if TYPE_CHECKING:
    from pytest import fixture  # noqa: PT013 - it may be another thing, below

    from acker.spark.run_bolt import BoltResult, Failed, run_bolt
else:
    try:
        from pytest import fixture  # noqa: PT013
    except ModuleNotFoundError:  # who tests by unittest has no use for fixtures

        def fixture(function):
            return function


__all__ = ["BoltResult", "Failed", "acker_topology", "acker_url", "run_bolt"]


@fixture
def acker_url() -> Iterator[str]:
    """The URL of an empty store, a server of the test's own that keeps nothing on the disk."""
    with EmbeddedServer(append_only=False) as server:
        yield server.url


@fixture
def acker_topology(acker_url: str) -> Iterator[Topology]:
    """The topology "test" in that store, for spouts and bolts in plain Python.

    Its time is yours: nothing ticks but `acker_topology.tick(force=True)`, three of which let a tree expire.
    """
    with Topology(acker_url, "test", ackers=1) as topology:
        yield topology


def __getattr__(name: str) -> Any:
    # They need Spark, which who tests plain Python may not have: pytest gets all that `dir` shows.
    if name not in ("BoltResult", "Failed", "run_bolt"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module("acker.spark.run_bolt"), name)
    return value
