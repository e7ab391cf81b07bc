"""The options of calls as keyword arguments (PEP 692): editors complete them, type checkers refuse others.

These classes only name the options. `acker.spark.options.options.Options` describes and checks them.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict

from pyspark.sql import DataFrame

from acker.ledger.settings.config import Settings


class StoreOptions(Settings, total=False):
    """Options of the connection to the store, and the settings of the topology."""

    cluster: bool
    timeout: float
    enabled: bool


class AckerOptions(StoreOptions, total=False):
    """Options of `Acker`, for all its steps."""

    observe: bool


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
    """Options of a batch job."""

    subscription: str
    observe: bool


class ReconcileOptions(_Staging, total=False):
    """Options of `reconcile`. column: The column with the stamps."""

    column: str


class BoltOptions(JobOptions, total=False):
    """Options of a bolt. receives: The external stream whose rows the function gets."""

    receives: str
    stateless: bool
    after_loss: Literal["stop", "go on"]


class TrackOptions(_Spout, _Staging, _Batches, total=False):
    """Options of `track`."""

    observe: bool


class TrackArguments(TrackOptions, total=False):
    """Options of `track`, and its further arguments: they are no options of the data source.

    dead_letters_to: A sink of `acker.spark.kafka.to` or `acker.spark.sink`, or a function of a
        DataFrameWriter.
    """

    keep: Literal["rows", "ids"]
    reread: Callable[[DataFrame], DataFrame] | None
    place: str | Sequence[str]
    dead_letters_to: Any
    version: str | None


class ReadOptions(_Batches, total=False):
    """Options of reading a stream."""

    subscription: str
    stale: bool
    requests: bool
    fair_by: str
    schema_timeout: float


class StepOptions(_Batches, total=False):
    """Options of reading the rows of a step of a function."""

    fair_by: str


class LetterOptions(TypedDict, total=False):
    """A filter of dead letters, and options of reading them as a stream.

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
    """Options of writing a stream; with `message_id`, as a spout."""

    message_id: str
    spout: str
    stream_max_age: float
    stream_max_bytes: int
    anchored: bool
    stateless: bool
