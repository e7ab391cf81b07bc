"""Fixtures that all tests share. See tests/helpers/servers/servers.py for what they are made of."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, settings

from acker.embedded import EmbeddedServer
from acker.embedded.java import ensure_java
from tests.helpers.servers import jvm
from tests.helpers.servers.new_server import NewServer
from tests.helpers.servers.servers import CLUSTERS, KINDS, OLDEST, Servers, binary, clean_database, raw_client
from tests.helpers.servers.sockets import note_sockets

settings.register_profile(
    "acker",
    # An example talks to a server, and both cores may be busy: time says nothing about it.
    deadline=None,
    # An example takes a topology of its own name where it must not meet the examples before it.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("acker")

TESTS = Path(__file__).parent
ON_SCRIPTS = ("cli", "collectors", "inspect", "ledger", "streams")
"""Folders whose tests run on the oldest server, and on a cluster of the newest; histories run on all."""

os.environ.setdefault("JDK_JAVA_OPTIONS", jvm.SHORT_LIVED)


def pytest_sessionstart() -> None:
    """Has warnings of sockets that were left open name who left them."""
    note_sockets()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--slow`, which CI has by itself."""
    parser.addoption(
        "--slow", action="store_true", default=bool(os.environ.get("CI")), help="run the slow tests too"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the slow tests where they are not asked for; gives tests the time that they need."""
    if not config.getoption("--slow") and not config.option.markexpr:
        slow = [item for item in items if item.get_closest_marker("slow")]
        if len(slow) < len(items):  # a run that names slow tests only runs them
            config.hook.pytest_deselected(items=slow)
            items[:] = [item for item in items if not item.get_closest_marker("slow")]
    items[:] = _once_on_a_cluster(config, items)
    # What starts Spark comes first and together: one worker has it, and the other takes over from the end.
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)
    for item in items:
        heavy = item.get_closest_marker("slow") or item.get_closest_marker("spark")
        shrunk = item.path.name == "test_histories.py"  # where one fails
        if (heavy or shrunk) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(300))


def _once_on_a_cluster(config: pytest.Config, items: list[pytest.Item]) -> list[pytest.Item]:
    """The items without repeats on a cluster of a test marked `cluster(first=True)`: it runs there once."""
    run, left, there = list[pytest.Item](), list[pytest.Item](), set[str]()
    for item in items:
        mark, name = item.get_closest_marker("cluster"), item.nodeid.partition("[")[0]
        once = mark is not None and mark.kwargs.get("first") and any(kind in item.nodeid for kind in CLUSTERS)
        (left if once and name in there else run).append(item)
        there |= {name} if once else set()
    if left:
        config.hook.pytest_deselected(items=left)
    return run


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test on each kind of server, and those marked `cluster` on clusters.

    What stands above the store runs on the oldest server, and on a cluster of the newest. The newest as one
    server has the histories, workers, lines, functions and Spark.
    """
    if "kind" in metafunc.fixturenames:
        path = metafunc.definition.path
        above = any(path.is_relative_to(TESTS / folder) for folder in ON_SCRIPTS)
        above = above and path.name != "test_histories.py"
        kinds: list[Any] = [OLDEST] if above else list(KINDS)
        marked = metafunc.definition.get_closest_marker
        cluster, slow = marked("cluster"), pytest.mark.slow
        if cluster and not marked("one_server"):
            if cluster.kwargs.get("slow"):
                kinds.append(pytest.param(CLUSTERS[0], marks=slow))
            elif above:
                kinds.append(CLUSTERS[0])
            else:
                kinds += [CLUSTERS[0], *(pytest.param(kind, marks=slow) for kind in CLUSTERS[1:])]
        metafunc.parametrize("kind", kinds, indirect=True, scope="session")


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """The shared servers of this test process (each worker of pytest-xdist has its own)."""
    shared = Servers(tmp_path_factory.mktemp("clusters"))
    yield shared
    shared.close()


@pytest.fixture(scope="session")
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of server in turn: a test that asks for it, or for what depends on it, runs once on each."""
    assert isinstance(request.param, str)
    return request.param


@pytest.fixture(scope="session")
def server(servers: Servers, kind: str) -> EmbeddedServer:
    """The shared server of each kind, with whatever is in it. Not to be stopped or reconfigured."""
    return servers.get(kind)


@pytest.fixture
def damaged(request: pytest.FixtureRequest) -> bool:
    """True for a test that damages its store: what is left in it may have no owner."""
    return request.node.get_closest_marker("damage") is not None


@pytest.fixture
def url(servers: Servers, kind: str, damaged: bool) -> Iterator[str]:
    """The URL of an empty store of each kind: what nearly every test asks for."""
    with clean_database(servers.url(kind), damaged=damaged) as address:
        yield address


@pytest.fixture
def valkey_url(servers: Servers, damaged: bool) -> Iterator[str]:
    """The URL of an empty embedded server only, for tests that are too slow to run on every kind."""
    with clean_database(servers.url("valkey"), damaged=damaged) as address:
        yield address


@pytest.fixture
def raw(url: str) -> Iterator["redis.Redis"]:
    """A plain client of the server behind `url`, to look at what acker left in it."""
    with raw_client(url) as client:
        yield client


@pytest.fixture
def valkey_raw(valkey_url: str) -> Iterator["redis.Redis"]:
    """A plain client of the server behind `valkey_url`."""
    with redis.Redis.from_url(valkey_url) as client:
        yield client


@pytest.fixture(scope="session")
def java_home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """JAVA_HOME, set for Spark in this process and its children."""
    java = ensure_java()
    cache: pytest.Cache | None = getattr(request.config, "cache", None)
    jvm.use_archive(java, cache.mkdir("spark") if cache else tmp_path_factory.mktemp("spark"))
    return java.home


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    directory = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", directory],
        cwd=Path(__file__).parent.parent,
        check=True,
        capture_output=True,
    )
    (found,) = directory.glob("*.whl")
    return found


@pytest.fixture
def new_server(tmp_path: Path) -> Iterator[NewServer]:
    """Starts servers that belong to this test alone, to be killed, frozen, restarted or set up badly.

    `new_server(kind="valkey", append_only=True, **settings)`; `settings` go to EmbeddedServer.
    """
    started: list[EmbeddedServer] = []

    def start(kind: str = "valkey", **settings: object) -> EmbeddedServer:
        settings = {"directory": tmp_path / f"server-{len(started)}", **settings}
        started.append(EmbeddedServer(binary=binary(kind), **settings))  # type: ignore[arg-type]
        return started[-1].start()

    yield start
    for server in started:
        server.close()
