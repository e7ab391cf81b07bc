"""What a call of a function costs: `examples/reach.py`, four steps in plain Python, on one server.

    uv run python -m benchmarks.drpc [--calls 50] [--many 2000] [--callers 200] [--json]

The workers, and who calls, are threads of one process, which is idle but for that. Printed are:

    one by one   the median of a call, in milliseconds and in PINGs of the same server; at most 250 are asked
    together     requests a second of `execute_many`
    side by side requests a second of so many callers at once, each with a group of its own
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from concurrent.futures import Future

from acker import Topology
from acker.embedded import EmbeddedServer
from acker.store.operation import Request
from examples.reach import direct, function, generated

_PINGS = 1_000


def seconds(action: Callable[[], object]) -> float:
    """How long an action takes."""
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def run(calls: int, many: int, callers: int) -> dict[str, float]:
    """The figures. Raises SystemExit where an answer is wrong."""
    shared, followers = generated()
    urls = list(shared)
    expected = {url: direct(url, shared, followers) for url in urls}
    with EmbeddedServer(append_only=False) as server, Topology(server.url, "bench") as topology:
        reach = function(shared, followers, spark=False)
        with reach.work(topology):
            client = topology.drpc(reach.name)
            client.execute(urls[-1])
            store = topology.ledger.store
            ping = statistics.median(
                seconds(lambda: store.send([Request(b"", ["PING"])])) for _ in range(_PINGS)
            )
            alone = statistics.median(seconds(lambda: client.execute(urls[-1])) for _ in range(calls))
            asked = [urls[number % len(urls)] for number in range(many)]
            answers: list[object] = []
            together = seconds(lambda: answers.extend(client.execute_many(asked)))
            if answers != [expected[url] for url in asked]:
                raise SystemExit("execute_many: expected the reach of each URL as it is worked out directly")
            futures: list[Future[object]] = []

            def side_by_side() -> None:
                futures.extend(client.submit(url) for url in asked[:callers])
                for future in futures:
                    future.result()

            beside = seconds(side_by_side)
    return {
        "ping_ms": 1000 * ping,
        "call_ms": 1000 * alone,
        "call_pings": alone / ping,
        "together_per_second": many / together,
        "side_by_side_per_second": callers / beside,
    }


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--many", type=int, default=2_000)
    parser.add_argument("--callers", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = run(asked.calls, asked.many, asked.callers)
    if asked.json:
        print(json.dumps(found))
        return
    print(f"one by one: {found['call_ms']:.1f} ms a call, {found['call_pings']:.0f} PING")
    print(f"together: {found['together_per_second']:,.0f} requests/s")
    print(f"side by side: {found['side_by_side_per_second']:,.0f} requests/s")


if __name__ == "__main__":
    main()
