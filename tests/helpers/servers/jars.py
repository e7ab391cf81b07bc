"""Jars that Spark and Python do not bring, fetched by Maven once and kept in the user's cache."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

NO_MAVEN = "no Maven to fetch {} with (apt-get install maven)"
"""The reason of a test that is left out; where CI is set, it fails with that."""
DELTA, ICEBERG = "4.1.0", "1.11.0"
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>acker</groupId><artifactId>jars</artifactId><version>1</version>
  <dependencies>
    {}
  </dependencies>
</project>
"""


def fetch(name: str, *artifacts: str, only: str = "") -> Path | None:
    """The folder with the jars of artifacts and of what they need; None if they and Maven are missing.

    Args:
        name: The name of the folder in the cache, with the versions.
        artifacts: Each as `group:artifact:version`.
        only: The names of the artifacts to keep, with commas between; "" for all.
    """
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = root / "acker" / name
    if not (directory / "complete").exists() and shutil.which("mvn") is None:
        return None
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "complete").exists():
            (directory / "pom.xml").write_text(_POM.format("".join(map(_dependency, artifacts))))
            maven = ["mvn", "-q", "-B", "-f", str(directory / "pom.xml"), "-DincludeScope=runtime"]
            maven += [f"-DincludeArtifactIds={only}"] * bool(only)
            subprocess.run(
                [*maven, f"-DoutputDirectory={directory / 'jars'}", _PLUGIN],
                check=True,  # Maven's own words say why it could not
                timeout=600,
            )
            (directory / "complete").touch()
    return directory / "jars"


def _dependency(artifact: str) -> str:
    names = zip(("groupId", "artifactId", "version"), artifact.split(":"), strict=True)
    return f"<dependency>{''.join(f'<{name}>{text}</{name}>' for name, text in names)}</dependency>"


def lake() -> list[Path] | None:
    """The jars of Delta and Iceberg for Spark 4.1, the newest that they have a build for."""
    delta, iceberg = "delta-spark_4.1_2.13", "iceberg-spark-runtime-4.1_2.13"
    folder = fetch(
        f"lake-{DELTA}-{ICEBERG}",
        f"io.delta:{delta}:{DELTA}",
        f"org.apache.iceberg:{iceberg}:{ICEBERG}",
        only=f"{delta},delta-storage,unitycatalog-client,{iceberg}",
    )
    return None if folder is None else sorted(folder.iterdir())
