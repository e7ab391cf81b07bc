"""Finds the server of a key, by the last answer of a cluster or Sentinels and later redirections. No I/O."""

import time
from collections.abc import Iterable, Mapping

import redis
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from acker.store.address import Address, Node
from acker.store.operation import Reply

_FORGOTTEN = 60.0
"""Seconds without a call after which nobody knows if a server has been busy all the time."""


class Nodes:
    """The servers behind an address, for `Store` and its asyncio twin, and for any thread.

    If `stale` is set, the caller sends `question` to one of `to_ask()`, and gives the reply to `learn`.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self.stale = address.kind != "server"
        self._slots = REDIS_CLUSTER_HASH_SLOTS if address.kind == "cluster" else 1
        first = address.nodes[0] if address.kind == "server" else None
        self._owners: list[Node | None] = [first] * self._slots
        self._known: set[Node] = set()
        self._source: Node | None = None
        self._lost: list[Node] = []
        self.busy: dict[Node, tuple[float, float]] = {}
        """Servers that a script holds: Unix seconds of the first and the last answer that said so."""

    @property
    def question(self) -> tuple[str, ...]:
        """The command that asks for the places of the keys."""
        if self.address.kind == "cluster":
            return ("CLUSTER", "SLOTS")
        return ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.address.service)

    @property
    def only(self) -> Node | None:
        """The server of all keys, if it is single and known."""
        return self._owners[0] if self._slots == 1 else None

    def note_busy(self, node: Node, error: Exception) -> Exception:
        """Notes that a server says BUSY; returns the error with the time since which it has said so here."""
        now = time.time()
        since, last = self.busy.get(node, (now, now))
        since = since if last <= now < last + _FORGOTTEN else now
        self.busy[node] = since, now
        at = time.strftime("%H:%M:%S UTC", time.gmtime(since))
        return redis.ResponseError(f"{str(error).rstrip('.')}; it has said so since {at}, and maybe before")

    @property
    def many(self) -> bool:
        """True if the keys are spread over servers by their slots."""
        return self._slots > 1

    def owner(self, key: bytes) -> Node | None:
        """The known server of a key."""
        return self._owners[key_slot(key) if self._slots > 1 else 0]

    def group(
        self, keys: Mapping[int, bytes], asked: Mapping[int, Node]
    ) -> tuple[dict[Node, list[int]], bool]:
        """Groups requests by the servers of their keys; also True if a key lies nowhere at present.

        keys: The key of each request, by its number. asked: The server of each request that is redirected
        once.
        """
        numbers: dict[Node, list[int]] = {}
        nowhere = False
        for number, key in keys.items():
            node = asked.get(number) or self.owner(key)
            if node is None:
                nowhere = True
            else:
                numbers.setdefault(node, []).append(number)
        return numbers, nowhere

    def to_ask(self) -> list[Node]:
        """The nodes to ask, best first: nodes that failed last, or were wrong about another, come last."""
        asked: Iterable[Node] = self.address.nodes
        if self.address.kind == "cluster":
            asked = dict.fromkeys([*sorted(self._known), *asked])
        order = {node: place for place, node in enumerate(self._lost)}
        return sorted(asked, key=lambda node: order.get(node, -1))

    def learn(self, asked: Node, reply: Reply) -> bool:
        """Takes the answer of a node; returns True if it names the place of any key."""
        owners: list[Node | None] = [None] * self._slots
        nodes: set[Node] = set()
        if self.address.kind == "cluster":
            for first, last, *servers in reply:
                members = [_node(server, asked) for server in servers]
                nodes.update(members)
                owners[first : last + 1] = members[:1] * (last + 1 - first)
        elif reply is not None:
            owners = [_node(reply, asked)]
            nodes.update(node for node in owners if node)
        if not nodes:
            return False
        self._owners, self._known, self.stale, self._source = owners, nodes, False, asked
        self._lost = [node for node in self._lost if node in nodes or node in self.address.nodes]
        return True

    def lost(self, node: Node) -> None:
        """Notes that a connection to a node failed: it may have started anew."""
        self.busy.pop(node, None)
        self.doubt()
        self._last(node)

    def doubt(self) -> None:
        """Notes that a server did not behave as its place demands: the places are to be asked for anew.

        Another node is asked first: a node that is cut off from the others repeats the old places for ever.
        """
        self.stale = self.address.kind != "server"
        if self._source is not None:
            self._last(self._source)
            self._source = None

    def _last(self, node: Node) -> None:
        self._lost = [*(other for other in self._lost if other != node), node]

    def moved(self, error: redis.exceptions.MovedError, asked: Node) -> None:
        """Notes that a slot lies elsewhere."""
        if self._slots > 1:
            self._owners[error.slot_id] = target(error, asked)
        self.doubt()

    def gone(self, nodes: Iterable[Node]) -> list[Node]:
        """The nodes among `nodes` that no longer belong to the store."""
        return [node for node in nodes if node not in self._known and node not in self.address.nodes]


def target(error: redis.exceptions.AskError, asked: Node) -> Node:
    """The target of a redirection; without a host it is the host that sent it."""
    return error.host or asked[0], error.port


def _node(words: list[bytes | int], asked: Node) -> Node:
    host, port = words[0], int(words[1])
    name = host.decode() if isinstance(host, bytes) else ""
    return asked[0] if name in ("", "?") else name, port
