"""The reader in place of a reader that could not be made: it raises the reason at its first use.

Spark stops the reader of a query in any case. If making it raises, Spark has none to stop, and an
UnboundLocalError of its own replaces the reason.
"""

from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader

from acker.spark.runtime.versions import SupportsTriggerAvailableNow


class UnmadeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises an error at its first use, whatever that is."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def _raise(self, *_: Any, **__: Any) -> NoReturn:
        """Raises the error."""
        raise self._error

    # Spark's names.
    initialOffset = prepareForTriggerAvailableNow = getDefaultReadLimit = latestOffset = _raise  # noqa: N815
    partitions = read = commit = _raise
