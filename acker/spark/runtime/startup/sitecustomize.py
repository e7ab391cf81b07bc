"""Lets each Python worker import pyspark from its installation, and not from the zip beside it.

Spark puts `pyspark/python/lib/pyspark.zip` before everything else on its workers' path. The zip has no
bytecode, so each process that is started (and not forked) compiles pyspark anew: a second for each query that
reads a Python data source. If pip has installed pyspark, the same files are there, compiled.

Python imports this module by its name, from the first directory of its path that has one (the standard
library's `site`); `acker.spark.tuned` puts this directory there. The next module of that name has its turn
then.
"""

import sys
from pathlib import Path


def installed(path: list[str]) -> list[str]:
    """Returns a worker's path without zips of packages that are installed on it, and without Spark's jar.

    They are left out only if the installation that they belong to is on the path: other versions stay.
    """
    homes = [Path(entry).parents[2] for entry in path if entry.endswith("/python/lib/pyspark.zip")]
    mine = [home for home in homes if (home / "__init__.py").is_file() and str(home.parent) in path]

    def there(entry: str) -> bool:
        file = Path(entry)
        package = file.name.partition("-")[0].removesuffix(".zip")
        return any(
            file.parent == home / "jars"
            or (file.parent == home / "python" / "lib" and (home.parent / package / "__init__.py").is_file())
            for home in mine
        )

    return [entry for entry in path if not there(entry)]


def _next_one() -> None:
    """Imports the module that this one hides, if there is one."""
    this = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ModuleNotFoundError:
        sys.modules[__name__] = this


if __name__ == "sitecustomize":
    _own = str(Path(__file__).parent)
    sys.path[:] = [entry for entry in installed(sys.path) if entry != _own]
    _next_one()
