"""The reach of URLs, asked as a function: `python -m examples.reach foo.com bar.com`.

The reach of a URL is how many people follow somebody who has shared it, each counted once. Four steps work it
out: the people who shared it, their followers, the distinct ones among several tasks, and the sum. Two files
give the graph, `--shared` (`{url: [people]}`) and `--followers` (`{person: [followers]}`); else one is
generated. With `--spark` a Spark job works on the second step.
"""

import argparse
import json
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from acker import Topology
from acker.drpc import LinearDRPC, Out
from acker.embedded import EmbeddedServer
from acker.errors import AckerError

Graph = Mapping[str, Sequence[str]]
TOPOLOGY = "reach"


def generated(urls: int = 20, people: int = 200, seed: int = 1) -> tuple[Graph, Graph]:
    """A graph: the people who shared each URL, and the followers of each person."""
    chance = random.Random(seed)
    names = [f"person-{number}" for number in range(people)]
    shared = {f"url-{number}.com": chance.sample(names, number) for number in range(urls)}
    followers = {name: chance.sample(names, chance.randrange(10)) for name in names}
    return shared, followers


def read(file: str) -> Graph:
    """The graph in a JSON file. Raises ArgumentTypeError for a file without one."""
    expected = f"{file}: expected a file of JSON, {{name: [names]}}"
    try:
        found = json.loads(Path(file).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"{expected}: {error}") from None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"{expected}, got a {type(found).__name__}")
    for name, names in found.items():
        if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
            raise argparse.ArgumentTypeError(f"{expected}, got {names!s:.50} for {name!r:.50}")
    return found


def direct(url: str, shared: Graph, followers: Graph) -> int:
    """The reach of a URL, worked out in one go."""
    return len({name for person in shared.get(url, ()) for name in followers.get(person, ())})


class Distinct:
    """Counts the distinct followers that are for one task."""

    def __init__(self, _: object) -> None:
        self.names: set[str] = set()

    def execute(self, row: dict[str, Any]) -> None:
        """Takes a follower."""
        self.names.add(row["follower"])

    def finished(self, out: Out) -> None:
        """No further one will come to this task."""
        out.emit({"n": len(self.names)})


class Sum:
    """Adds up what the tasks have counted."""

    def __init__(self, _: object) -> None:
        self.n = 0

    def execute(self, row: dict[str, Any]) -> None:
        """Takes the count of a task."""
        self.n += row["n"]

    def finished(self, out: Out) -> None:
        """All tasks have counted."""
        out.result(self.n)


def function(shared: Graph, followers: Graph, spark: bool) -> LinearDRPC:
    """The function: a URL, and its reach."""

    def sharers(row: dict[str, Any], out: Out) -> None:
        for person in shared.get(row["args"], ()):
            out.emit({"person": person})

    def following(row: dict[str, Any], out: Out) -> None:
        for name in followers.get(row["person"], ()):
            out.emit({"follower": name})

    return (
        LinearDRPC("reach", idempotent=True, timeout=300.0)
        .step("sharers", sharers, columns={"person": pa.string()})
        .step("following", None if spark else following, columns={"follower": pa.string()}, spark=spark)
        .gather("distinct", Distinct, tasks=6, by=["follower"], columns={"n": pa.int64()})
        .gather("sum", Sum)
    )


def run(url: str, urls: Sequence[str], shared: Graph, followers: Graph, spark: bool) -> dict[str, int]:
    """Asks for the reach of each URL, at the store behind `url`."""
    with Topology(url, TOPOLOGY, ackers=2) as topology:
        reach = function(shared, followers, spark)
        job: Callable[[], AbstractContextManager[object]] = nullcontext
        if spark:
            from examples.reach_spark import working

            job = partial(working, url, TOPOLOGY, reach, followers)
        with reach.work(topology, threads=2), job():
            return dict(zip(urls, topology.drpc("reach").execute_many(urls), strict=True))


def main() -> None:
    """Runs the example as a program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("urls", nargs="*", metavar="URL", help="default: all that were shared")
    parser.add_argument("--shared", type=read, metavar="FILE", help="JSON: the people behind each URL")
    parser.add_argument("--followers", type=read, metavar="FILE", help="JSON: the followers of each person")
    parser.add_argument("--json", action="store_true", help="prints {url: reach}")
    parser.add_argument("--spark", action="store_true", help="a Spark job works on one of the steps")
    parser.add_argument("--url", dest="store", help="the store; default: a server of its own")
    options = parser.parse_args()
    if (options.shared is None) != (options.followers is None):
        given = "--shared" if options.followers is None else "--followers"
        parser.error(f"--shared FILE and --followers FILE: both are needed, or neither, got only {given}")
    shared, followers = generated() if options.shared is None else (options.shared, options.followers)
    urls = list(dict.fromkeys(options.urls)) or sorted(shared)
    ask = partial(run, urls=urls, shared=shared, followers=followers, spark=options.spark)
    try:
        if options.store:
            found = ask(options.store)
        else:
            with tempfile.TemporaryDirectory() as directory, EmbeddedServer(Path(directory)) as server:
                found = ask(server.url)
    except AckerError as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    if options.json:
        print(json.dumps(found))
    else:
        for url, reach in found.items():
            print(f"{url}: {reach}")


if __name__ == "__main__":
    main()
