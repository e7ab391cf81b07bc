"""The reader in the place of one that could not be made: it raises the reason at its first use.

Spark stops the reader of a query in any case. Where making it raises, Spark has none to stop, and an
UnboundLocalError of its own takes the place of the reason.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from acker.spark.runtime.versions import SupportsTriggerAvailableNow


class UnmadeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises an error at its first use, whatever that is."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def _raise(self) -> NoReturn:
        raise self._error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Raises the error."""
        self._raise()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Raises the error."""
        self._raise()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        """Raises the error."""
        self._raise()

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Raises the error."""
        self._raise()

    def partitions(self, start: Any, end: Any) -> Sequence[InputPartition]:
        """Raises the error."""
        self._raise()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Raises the error."""
        self._raise()

    def commit(self, end: Any) -> None:
        """Raises the error."""
        self._raise()
