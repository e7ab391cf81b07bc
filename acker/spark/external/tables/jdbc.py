"""Databases: spouts that keep ids read rows again by their key, by Spark's reader of JDBC."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import groupby
from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.types import DataType, DateType, DecimalType, IntegralType, StringType

from acker.errors import ValidationError, shown
from acker.spark.records.once import quoted
from acker.spark.source.rereading import Reread, check_names, check_rows, is_number, key_names

CHUNK, MOST_CHUNK = 500, 1_000
"""Ids of a query by default, and at most: Oracle takes no more in a list."""
_OF_THIS = {"url", "dbtable", "query", "partitioncolumn", "lowerbound", "upperbound", "numpartitions"}
_UNBOUNDED = {"pushdownpredicate"}
_LITERAL = {"postgresql", "oracle", "sqlserver", "db2", "derby", "h2", "hsqldb", "sqlite"}
"""Databases to which a backslash in a text is no escape. Spark doubles quotes only, whatever the database."""
_KINDS: tuple[type[DataType], ...] = (StringType, IntegralType, DecimalType, DateType)
_Key: TypeAlias = tuple[Any, ...]


def reread(
    url: str,
    table: str,
    key: str | Sequence[str],
    *,
    chunk: int = CHUNK,
    rows: Callable[[DataFrame], DataFrame] | None = None,
    **options: object,
) -> Reread:
    """Reads rows of a table of a database again by their key, for `track(..., keep="ids", reread=...)`.

        settings = {"user": "acker", "password": PASSWORD, "driver": "org.postgresql.Driver"}
        with acker.job(spark, "price", run=DAY) as collector:
            orders = spark.read.jdbc(URL, "orders", properties=settings).filter(f"day = '{DAY}'")
            tracked = acker.track(
                orders, "orders", message_id="id", keep="ids",
                reread=jdbc.reread(URL, "orders", "id", **settings),
            )

    A query asks for at most `chunk` ids, and gives the rows of these ids only: their columns should have an
    index. Spark doubles the quotes of a text and escapes nothing else. So a key with a backslash is refused
    for databases that may read it as an escape, as MySQL does: its row waits. A row comes back as the table
    has it now: updated since it was tracked, or gone from its source, if it was deleted. The values of
    options are left out of logs and errors.

    Args:
        url: The database, "jdbc:...". The session needs the driver's jar.
        table: The name of the table, or a query in parentheses with an alias, as Spark's `dbtable`.
        key: The columns that name a row. They must be among the kept ones: `message_id`, or of `place`, with
            the types that the table has for Spark: text, integers, decimals, or dates.
        chunk: The most ids of a query, 1 to 1,000.
        rows: Makes the tracked rows of the rows of the table; None keeps all columns.
        **options: Options of Spark's reader, as `driver`, `user`, `password`, `fetchsize`.

    Returns:
        The function for `reread`.

    Raises:
        ValidationError: An argument is invalid.
    """
    check_names("jdbc.reread", url=url, table=table)
    if not url.startswith("jdbc:"):
        raise ValidationError("jdbc.reread: url: expected one that begins with 'jdbc:', got another")
    names = key_names("jdbc.reread", key)
    if not is_number(chunk) or not 1 <= chunk <= MOST_CHUNK:
        raise ValidationError(f"jdbc.reread: chunk: expected 1 to {MOST_CHUNK:,}, got {shown(chunk)}")
    check_rows("jdbc.reread", rows)
    for name in options:
        if name.lower() in _OF_THIS | _UNBOUNDED:
            raise ValidationError(
                f"jdbc.reread: {name}: expected no such option: a query reads some ids, and no others"
            )
    return _Reread(url, table, names, chunk, rows, {name: str(value) for name, value in options.items()})


class _Reread:
    """Finds rows by their keys.

    Attributes:
        secrets: Texts that belong into no log.
    """

    def __init__(
        self,
        url: str,
        table: str,
        names: Sequence[str],
        chunk: int,
        rows: Callable[[DataFrame], DataFrame] | None,
        options: dict[str, str],
    ) -> None:
        self._options = options | {"url": url, "dbtable": table}
        self._names = names
        self._chunk = chunk
        self._rows = rows
        inside = re.findall(r"=([^;&?,)]+)", url) + re.findall(r"//([^/@]+)@", url)
        told = {"true", "false"}
        self.secrets = tuple({url, *inside, *(text for text in options.values() if text.lower() not in told)})

    def __repr__(self) -> str:
        return f"jdbc.reread of {', '.join(self._names)}"

    def __call__(self, ids: DataFrame) -> DataFrame:
        named = [quoted(name) for name in self._names]
        there = ids.sparkSession.read.format("jdbc").options(**self._options).load()
        kinds = zip(self._names, ids.select(*named).schema, there.select(*named).schema, strict=True)
        for name, of_ids, of_table in kinds:
            _check_kinds(name, of_ids.dataType, of_table.dataType)
        keys = [tuple(row) for row in ids.select(*named).distinct().collect()]
        check_escapes(self._options["url"], self._names, keys)
        parts = [there.filter(_any([*_groups(self._names, part)])) for part in _chunks(keys, self._chunk)]
        stored = reduce(DataFrame.unionAll, parts or [there.filter(F.lit(False))])
        return stored if self._rows is None else self._rows(stored)


def check_escapes(url: str, names: Sequence[str], keys: Sequence[_Key]) -> None:
    """Raises ValidationError for a key that the database of a URL may read as another text, or as SQL."""
    if url.split(":")[1].lower() in _LITERAL:
        return
    for key in keys:
        for name, value in zip(names, key, strict=True):
            if isinstance(value, str) and "\\" in value:
                raise ValidationError(
                    f"jdbc.reread: key: expected no backslash in {name!r}, which this database may read as "
                    f"an escape, got {shown(value)}: write a `reread` of your own for such keys"
                )


def _check_kinds(name: str, of_ids: DataType, of_table: DataType) -> None:
    """Raises ValidationError if values of ids might not be found among the values of the table."""
    if not isinstance(of_table, _KINDS):
        raise ValidationError(
            f"jdbc.reread: key: expected columns of text, integers, decimals or dates, got {name!r} of "
            f"{of_table.simpleString()}"
        )
    same = any(isinstance(of_ids, kind) and isinstance(of_table, kind) for kind in _KINDS)
    if isinstance(of_ids, DecimalType) and isinstance(of_table, DecimalType):
        same = of_ids == of_table
    if not same and not (isinstance(of_ids, IntegralType) and isinstance(of_table, DecimalType)):
        raise ValidationError(
            f"jdbc.reread: key: expected ids of the type that the table has for {name!r}, "
            f"{of_table.simpleString()}, got {of_ids.simpleString()}: keep the column as it is, with `place`"
        )


def _chunks(keys: Sequence[_Key], size: int) -> Iterator[Sequence[_Key]]:
    """Keys in parts of a size; keys that are alike come together."""
    ordered = sorted(
        keys, key=lambda key: [(value is None, value if value is not None else 0) for value in key]
    )
    for first in range(0, len(ordered), size):
        yield ordered[first : first + size]


def _groups(names: Sequence[str], keys: Sequence[_Key]) -> Iterator[Column]:
    """A condition for each group of keys that differ in one column only: in the column with fewest groups."""
    places = range(len(names))
    listed = min(places, key=lambda place: len({_without(key, place) for key in keys}))
    ordered = sorted(keys, key=lambda key: [(value is None, str(value)) for value in _without(key, listed)])
    for others, group in groupby(ordered, key=lambda key: _without(key, listed)):
        condition = _among(names[listed], [key[listed] for key in group])
        for name, value in zip(_without(tuple(names), listed), others, strict=True):
            condition &= _among(name, [value])
        yield condition


def _without(values: _Key, place: int) -> _Key:
    return values[:place] + values[place + 1 :]


def _among(name: str, values: Sequence[Any]) -> Column:
    """The condition that a column has any of some values."""
    given = [value for value in values if value is not None]
    conditions = [quoted(name).isin(given)] if given else []
    return _any(conditions + [quoted(name).isNull()] * (len(given) < len(values)))


def _any(conditions: Sequence[Column]) -> Column:
    """The condition that any holds: no deeper than their number needs."""
    if len(conditions) == 1:
        return conditions[0]
    middle = len(conditions) // 2
    return _any(conditions[:middle]) | _any(conditions[middle:])
