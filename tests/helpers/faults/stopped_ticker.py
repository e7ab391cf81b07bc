"""A ticker in a process of its own, which a signal stops or ends in the middle of its look for reasons."""

import argparse
import os
import signal
import threading
from collections.abc import Mapping
from functools import partial

from acker.inspect.locate import expiry_reasons
from acker.inspect.operate.ticker_hooks import HOOKS
from acker.ledger.calls.core import Core
from acker.ledger.tick import tick
from acker.ledger.tick.tick import Reasons
from acker.ledger.tick.ticker import Ticker
from acker.store.client import Store
from acker.store.operation import Operation

whole_look = expiry_reasons._explained  # what is done once something is set aside


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--signal", type=partial(getattr, signal), required=True)
    parser.add_argument(
        "--after", type=int, required=True, help="exchanges of the first look that finds trees"
    )
    parser.add_argument("--hold", type=float, default=tick.HOLD)
    given = parser.parse_args()
    left = [given.after]

    def look(core: Core, wanted: Mapping[int, frozenset[bytes]]) -> Operation[Reasons]:
        operation, replies = whole_look(core, wanted), None
        while True:
            try:
                asked = operation.send(replies)  # type: ignore[arg-type]
            except StopIteration as end:
                count_down(all_done=True)
                return end.value  # type: ignore[no-any-return]
            count_down()
            replies = yield asked

    def count_down(*, all_done: bool = False) -> None:
        left[0] -= 1
        if left[0] == -1 or (all_done and left[0] >= 0):
            left[0] = -1
            os.kill(os.getpid(), given.signal)

    expiry_reasons._explained = look
    tick.HOLD = given.hold
    Ticker(Store(given.url, timeout=90.0), hooks=HOOKS).run(threading.Event())


if __name__ == "__main__":
    main()
