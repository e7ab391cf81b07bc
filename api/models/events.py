"""The events of a live stream."""

from pydantic import Field

from acker.ledger.trees.buckets import Bucket
from api.fields import Answer, At, Count, counted, with_fields
from api.models.answers import Health, Latency, Outcome
from api.models.stats import COUNTED


@with_fields(counted(COUNTED, Count) | {"latency": (Latency, ...), "health": (Health, ...)})
class Sample(Answer):
    """Event `sample`, once a second: what changed since the one before. Its id resumes the stream."""

    at: At
    seconds: float | None = Field(description="Since the reading before; null where there was none.")
    pending: Count
    outstanding: Count
    waiting_slabs: Count
    buckets: dict[Bucket, Count]
    high_water_use: float = Field(ge=0)
    rotation_age: float | None
    backlog: Count


class OutcomeSummary(Answer):
    """Event `outcomes`, in place of the single ones beyond 20 a second."""

    at: At
    failed: Count = Field(description="How many more failed than were reported one by one.")
    expired: Count


@with_fields({"outcome": (Outcome, Field(description="Event `outcome`: a tree failed or expired."))})
class EventStream(Answer):
    """The data of each kind of event; a stream's events hold one of these each."""

    sample: Sample
    outcomes: OutcomeSummary
