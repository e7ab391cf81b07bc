"""docker-compose.yml, as `docker-compose config` reads it, which needs no engine."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from acker.embedded.server import free_port
from acker.errors import StoreMisconfigured
from acker.ledger.settings.topologies import names
from acker.store.client import Store
from tests.helpers.servers.servers import wait_until

ROOT = Path(__file__).parent.parent.parent
TOKENS = "operate:a-token-of-this-test"
PASSWORD = "a-password-of-this-test"


def config(**environment: str) -> "subprocess.CompletedProcess[str]":
    """Runs it; without docker-compose the test is skipped, but fails where CI is set."""
    program = shutil.which("docker-compose")
    if program is None:
        message = "no docker-compose on PATH (apt-get install docker-compose)"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return subprocess.run(
        [program, "--file", str(ROOT / "docker-compose.yml"), "config"],
        env={"PATH": os.environ["PATH"], "HOME": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """The services by their names."""
    run = config(ACKER_TOKENS=TOKENS, ACKER_STORE_PASSWORD=PASSWORD)
    assert run.returncode == 0, run.stderr
    found = yaml.safe_load(run.stdout)["services"]
    assert isinstance(found, dict)
    return found


def test_without_tokens_or_password_it_refuses_to_start_and_names_what_is_missing() -> None:
    given = {"ACKER_TOKENS": TOKENS, "ACKER_STORE_PASSWORD": PASSWORD}
    for name in given:
        rest = {other: value for other, value in given.items() if other != name}
        for environment in (rest, {**rest, name: ""}):
            run = config(**environment)
            assert run.returncode != 0
            assert name in run.stderr


def test_it_has_the_store_the_service_a_spark_and_the_jobs_of_the_demo(services: dict[str, Any]) -> None:
    usual = {name for name, service in services.items() if not service.get("profiles")}
    assert usual == {"redis", "service", "spark-master", "spark-worker", "spout", "split", "count"}
    assert {name for name, service in services.items() if service.get("profiles") == ["kafka"]} == {"kafka"}
    command = services["redis"]["command"][-1]
    assert "--appendonly yes" in command
    assert "--maxmemory-policy noeviction" in command
    assert services["redis"]["volumes"]


def test_what_runs_on_has_a_health_check_and_waits_for_what_it_needs(services: dict[str, Any]) -> None:
    for name, service in services.items():
        check = service["healthcheck"]
        disabled = check.get("disable", False) or check["test"] == ["NONE"]
        assert disabled == (name == "spout"), "the spout alone ends, when it is done"
        for needed, when in service.get("depends_on", {}).items():
            assert when["condition"] == ("service_started" if needed == "spout" else "service_healthy"), name


def test_the_token_goes_to_the_service_only_and_no_port_is_open_to_others(services: dict[str, Any]) -> None:
    for name, service in services.items():
        tokens = service.get("environment", {}).get("ACKER_TOKENS")
        assert tokens == (TOKENS if name == "service" else None), name
        for port in service.get("ports", []):
            assert str(port).startswith("127.0.0.1:"), name


ROLES = {"service": "service", "spout": "spout", "split": "executor", "count": "executor"}


def test_each_service_is_a_user_of_its_role_in_a_network_with_the_store(services: dict[str, Any]) -> None:
    for name, service in services.items():
        url = service.get("environment", {}).get("ACKER_URL", "")
        expected = f"redis://acker-{ROLES[name]}:{PASSWORD}@redis:6379/0" if name in ROLES else ""
        assert url == expected, name
        if url:
            assert service["networks"].keys() <= services["redis"]["networks"].keys(), name
        assert service["mem_limit"], name
    with_spark = {name for name, service in services.items() if "spark" in service["networks"]}
    assert with_spark == services.keys() - {"service", "kafka"}
    assert services["kafka"]["networks"].keys() == {"broker"}


def test_its_store_knows_the_roles_alone(services: dict[str, Any], tmp_path: Path) -> None:
    [shell, option, script] = services["redis"]["command"]
    script = script.replace("$$", "$").replace("docker-entrypoint.sh ", "")
    for path, here in (("/acker.acl", ROOT / "deploy" / "acker.acl"), ("/run/acker", tmp_path)):
        assert path in script
        script = script.replace(path, str(here))
    [check_shell, check] = services["redis"]["healthcheck"]["test"]
    assert check_shell == "CMD-SHELL"
    port = str(free_port())
    environment = {"PATH": os.environ["PATH"], "ACKER_STORE_PASSWORD": PASSWORD}
    words = [shell, option, f"{script} --port {port} --dir {tmp_path}"]
    with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL) as store:
        try:

            def healthy() -> bool:
                command = check.replace("$$", "$").replace("redis-cli", f"redis-cli -p {port}")
                return subprocess.run(["sh", "-c", command], env=environment, check=False).returncode == 0

            wait_until(healthy)
            for role in ("executor", "spout", "service", "reader"):
                assert Store(f"redis://acker-{role}:{PASSWORD}@127.0.0.1:{port}/0").run(names()) == []
            for url in (f"redis://127.0.0.1:{port}/0", f"redis://acker-reader:wrong@127.0.0.1:{port}/0"):
                with pytest.raises(StoreMisconfigured):
                    Store(url).run(names())
        finally:
            store.kill()


def test_every_module_that_a_service_runs_is_there(services: dict[str, Any]) -> None:
    for name, service in services.items():
        command = service.get("command") or []
        for module in (word for word in command if word.startswith("acker.")):
            assert ROOT.joinpath(*module.split(".")).with_suffix(".py").is_file(), name
        if "build" in service:
            target = f" AS {service['build']['target']}\n"
            assert target in (ROOT / "Dockerfile").read_text(), name


def test_the_images_run_as_nobody_special_and_get_no_secret() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith("USER ")][-1] == "USER 10001"
    assert not any("TOKEN" in line for line in lines if line.startswith(("ENV", "ARG")))
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignored, "what may go into an image is listed, not what may not"
