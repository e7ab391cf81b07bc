"""The graph of a topology."""

from pydantic import Field

from acker.inspect.topology.graph import EdgeKind, NodeKind
from api.fields import Answer, Count, Instant, Seconds
from api.models.topologies import Step


class GraphNode(Answer):
    """A spout, a step, a stream, or a subscription of which no step is known to read it."""

    id: str = Field(description="Names it in the graph.", examples=["step:split"])
    kind: NodeKind
    name: str = Field(description="Of a subscription: its stream, a slash, and its own name.")
    steps: list[Step] = Field(description="Who runs it; none for streams, and for plain Python.")
    age: Seconds | None = Field(description="Seconds since one who runs it was seen last.")
    rows: Count | None = Field(description="Of a stream: published for one subscription so far, at most.")
    trees: Count | None = Field(description="Of a topology's only spout: tracked so far. null for others.")
    tuples: Count | None = Field(description="Acked so far by a step. null where none are counted.")
    rows_behind: Count = Field(description="Rows still to be acked.")
    oldest: Seconds | None = Field(description="Seconds since the oldest segment that nobody has taken.")
    failed: Count = Field(
        description="Trees since `failures_since`: of a step what it has failed, of a spout all of its own."
    )
    expired: Count = Field(description="Trees of a spout since `failures_since`.")
    dead_letters: Count = Field(description="Rows that a spout has given up.")
    dropped: Count = Field(description="Segments dropped by a stream's limits.")


class GraphEdge(Answer):
    """What goes from one node to another."""

    id: str
    kind: EdgeKind = Field(
        description="Into a stream, out of it, or from a spout to a step that tracks or fails its trees."
    )
    source: str = Field(description="The id of a node.")
    target: str = Field(description="The id of a node.")
    subscription: str | None = Field(
        description="Of what is read, where it is known. Steps that share it share its figures."
    )
    rows: Count | None = Field(
        description="Read: acked so far. Emitted: those of the stream, where nobody else emits into it."
    )
    rows_behind: Count
    oldest: Seconds | None = Field(description="Seconds since the oldest segment that nobody has taken.")
    rows_dropped: Count


class GraphWorst(Answer):
    """What most needs a look."""

    node: str = Field(description="The id of a node.")
    edge: str | None = Field(description="The edge that leads there, if it is one.")
    text: str = Field(description="Why, for people.")


class Graph(Answer):
    """What a topology is made of, as far as it is known, what passes, and where it is worst."""

    at: Instant = Field(description="By the store's clock. Two answers give rates.")
    failures_since: Instant = Field(
        description="Since when failed and expired trees are counted: ten minutes, or less for very many."
    )
    worst: GraphWorst | None = Field(description="null where nothing needs a look.")
    nodes: list[GraphNode]
    edges: list[GraphEdge]
