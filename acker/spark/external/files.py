"""Files for spouts that keep ids: rows of parquet are read again by their file and their place in it."""

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.types import StructType

from acker.errors import ValidationError, shown
from acker.spark.source.rereading import Reread, check_names, check_rows

FILE, INDEX = "file_path", "row_index"
"""The columns of a row's place, as Spark names them in `_metadata`."""


def reread(
    path: str,
    *,
    format: str = "parquet",  # noqa: A002 - the word of Spark's reader
    schema: StructType | str | None = None,
    rows: Callable[[DataFrame], DataFrame] | None = None,
    **options: object,
) -> Reread:
    """Reads rows of parquet files again, for `track(..., keep="ids", reread=...)`.

        there = spark.readStream.schema(SCHEMA).parquet("/data/orders")
        orders = acker.track(
            there.select("*", "_metadata.file_path", "_metadata.row_index"), "orders", message_id="id",
            keep="ids", place=["file_path", "row_index"], reread=files.reread("/data/orders", schema=SCHEMA),
        )

    Only the files of the ids are read. A row whose file is gone from the directory is gone from its source; a
    directory that cannot be listed raises, and the rows wait.

    Args:
        path: The directory that the stream reads.
        format: "parquet". JSON, CSV, text and ORC have no numbers of rows.
        schema: The columns of the files; None reads them from the files.
        rows: Makes the tracked rows of the rows of the files, as the program has made them before `track`. It
            must keep the columns `file_path` and `row_index`. None keeps all columns.
        **options: Further options of Spark's reader.

    Returns:
        The function for `reread`.

    Raises:
        ValidationError: An argument is invalid, or the format is another one.
    """
    check_names("files.reread", path=path, format=format)
    if format != "parquet":
        raise ValidationError(
            f"files.reread: format: expected 'parquet', got {shown(format)}, whose rows Spark does not "
            "number. Give `track` an id of your own as message_id, and a function as reread that finds rows "
            "by it"
        )
    check_rows("files.reread", rows)
    further = {name: str(value) for name, value in options.items()}

    def read(ids: DataFrame) -> DataFrame:
        paths = [row[0] for row in ids.select(FILE).distinct().collect()]
        reader = ids.sparkSession.read.options(**further)
        there = (reader if schema is None else reader.schema(schema)).parquet(path)
        found = there.select("*", f"_metadata.{FILE}", f"_metadata.{INDEX}").filter(F.col(FILE).isin(paths))
        return found if rows is None else rows(found)

    return read
