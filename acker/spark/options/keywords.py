"""The options of calls as keyword arguments (PEP 692): editors complete them, type checkers refuse others.

`acker.spark.options.options.Options` tells what each is, and checks them all: these only name them.
"""

from typing import Literal, TypedDict

from acker.ledger.settings.config import Settings


class StoreOptions(Settings, total=False):
    """How the store is reached, and the settings of the topology."""

    cluster: bool
    timeout: float


class _Staging(TypedDict, total=False):
    segment_rows: int
    compression: Literal["lz4", "zstd", "none"]
    staging_ttl: int


class _Batches(TypedDict, total=False):
    max_rows: int
    max_bytes: int
    max_segments: int
    partitions: int


class _Spout(TypedDict, total=False):
    attempts: int
    attempt: str
    outcomes: bool
    max_spout_pending: int
    offset: str
    partition: str
    bad_message_id: Literal["dead_letter", "untracked"]
    after_loss: Literal["stop", "go on"]
    backoff: float
    max_backoff: float
    line: str
    group: int


class JobOptions(_Staging, total=False):
    """Of a batch job."""

    subscription: str


class BoltOptions(JobOptions, total=False):
    """Of a bolt."""

    stateless: bool
    after_loss: Literal["stop", "go on"]


class TrackOptions(_Spout, _Staging, _Batches, total=False):
    """Of what makes a DataFrame a spout."""


class ReadOptions(_Batches, total=False):
    """Of reading a stream."""

    subscription: str
    stale: bool
    requests: bool
    fair_by: str
    schema_timeout: float


class StepOptions(_Batches, total=False):
    """Of reading the rows of a step of a function."""

    fair_by: str


class LetterOptions(TypedDict, total=False):
    """Which dead letters, and how they are read as they come.

    See `acker.streams.dead_letters.filters.Filter`.
    """

    status: str
    step: str
    reason: str
    cause: str
    older_than: float
    newer_than: float
    max_rows: int
    schema_timeout: float


class WriteOptions(_Spout, _Staging, total=False):
    """Of writing a stream; with `message_id`, as a spout."""

    message_id: str
    spout: str
    stream_max_age: float
    stream_max_bytes: int
    anchored: bool
    stateless: bool
