"""A spout and a bolt with acker's collectors: `python examples/collectors.py [URL]`.

The spout reads lines, the bolt splits them into words and counts these; a line with a bad word fails alone
and is replayed once. Here both run in one process, and tuples travel between them as text, as they would in
the header of a Kafka record. The counts are the bolt's own, so its acks are sent when these are made, by a
flush. Without a URL it starts a server of its own.
"""

import sys
from collections import Counter, deque

from acker import FailedException, Topology, Tuple
from acker.collectors.bolt import Collector
from acker.embedded import EmbeddedServer

LINES = {
    "line-1": "the cow jumped over the moon",
    "line-2": "an apple a day keeps the doctor away",
    "line-3": "four score and seven years ago",
}
ATTEMPTS = 2


def main(url: str) -> None:
    """Emits each line until it is acked, at most twice."""
    with Topology(url, "wordcount", message_timeout=30.0, linger=None) as topology:
        spout = topology.spout("lines", max_spout_pending=100)
        counts: Counter[str] = Counter()
        attempts: Counter[str] = Counter()
        channel: deque[tuple[str, str]] = deque()

        @topology.basic_bolt("count")
        def count(collector: Collector, line: str) -> None:
            words = line.split()
            if "apple" in words and attempts["line-2"] == 1:
                raise FailedException("no fruit at the first attempt")
            counts.update(words)

        def emit(message_id: str) -> None:
            attempts[message_id] += 1
            [tuple_] = spout.emit(message_id)
            channel.append((str(tuple_), LINES[message_id]))

        for message_id in LINES:
            emit(message_id)
        while spout.pending:
            while channel:
                text, line = channel.popleft()
                count(Tuple.parse(text), line)
            topology.flush()
            for outcome in spout.outcomes(timeout=1.0):
                message_id = outcome.message_id.decode()
                print(message_id, outcome.status, outcome.reason)
                if outcome.status != "acked" and attempts[message_id] < ATTEMPTS:
                    emit(message_id)
                spout.confirm(outcome)
            topology.flush()
        print(dict(counts.most_common(3)))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with EmbeddedServer() as server:
            main(server.url)
