"""A program ends right after its queries: nothing of it is left to be called by the JVM."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession
from acker.spark import register, tuned
from acker.spark.queries import query_listener

query_listener._Listener.onQueryProgress = lambda *_: time.sleep(0.5)  # what is due comes after the end
directory = Path(sys.argv[1])
(directory / "rows").mkdir()
(directory / "rows" / "a.txt").write_text("x")
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = tuned(builder, local_checkpoints=True).getOrCreate()
register(spark)
query = spark.readStream.text(str(directory / "rows")).writeStream.format("noop")
query.option("checkpointLocation", str(directory / "c")).trigger(availableNow=True).start().awaitTermination()
print("done")
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_stack_trace_follows_a_job_that_succeeded(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert run.stdout == "done\n"
    assert "py4j" not in run.stderr
