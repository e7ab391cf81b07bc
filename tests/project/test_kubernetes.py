"""Kubernetes manifests: deploy/kubernetes.yml has ports, settings, probes and commands that acker has."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from acker.cli.app import app
from acker.store.address import parse
from api import openapi
from api.main import create_app
from api.settings.settings import Settings

ROOT = Path(__file__).parent.parent.parent
FILE = ROOT / "deploy" / "kubernetes.yml"
DOCUMENTS: list[dict[str, Any]] = list(yaml.safe_load_all(FILE.read_text()))
BY_NAME = {(one["kind"], one["metadata"]["name"]): one for one in DOCUMENTS}


def pod(name: str) -> dict[str, Any]:
    """The spec of the pods of a deployment."""
    spec: dict[str, Any] = BY_NAME["Deployment", name]["spec"]["template"]["spec"]
    return spec


def container(name: str) -> dict[str, Any]:
    """The only container of a deployment."""
    [only] = pod(name)["containers"]
    assert isinstance(only, dict)
    return only


def test_it_has_a_service_a_ticker_and_policies_in_one_namespace() -> None:
    assert set(BY_NAME) == {
        ("Deployment", "acker"), ("Deployment", "acker-ticker"), ("Service", "acker"),
        ("NetworkPolicy", "nothing"), ("NetworkPolicy", "to-service"), ("NetworkPolicy", "to-store"),
    }  # fmt: skip
    assert {one["metadata"]["namespace"] for one in DOCUMENTS} == {"acker"}


@pytest.mark.parametrize("name", ["acker", "acker-ticker"])
def test_its_commands_and_settings_exist(name: str) -> None:
    command, *words = container(name)["args"]
    known = get_command(app).commands[command]  # type: ignore[attr-defined]
    options = {option for parameter in known.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options
    assert 'ENTRYPOINT ["acker"]' in (ROOT / "Dockerfile").read_text()
    settings = {f"ACKER_{field.upper()}" for field in Settings.model_fields}
    assert {variable["name"] for variable in container(name)["env"]} <= settings


def test_its_probes_ask_paths_that_the_service_has() -> None:
    paths = openapi.build(create_app(Settings()))["paths"].keys()
    service = container("acker")
    probes = {
        probe: service[probe]["httpGet"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert {probe["path"] for probe in probes.values()} <= paths
    assert probes["livenessProbe"]["path"] == "/livez", "a store that is away must restart nobody"
    assert probes["readinessProbe"]["path"] == "/readyz"
    [port] = service["ports"]
    assert {probe["port"] for probe in probes.values()} == {port["name"]}
    assert service["args"][service["args"].index("--port") + 1] == str(port["containerPort"])


def test_its_service_and_its_policies_lead_to_that_port() -> None:
    [port] = container("acker")["ports"]
    service = BY_NAME["Service", "acker"]["spec"]
    labels = BY_NAME["Deployment", "acker"]["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()
    assert [one["targetPort"] for one in service["ports"]] == [port["name"]]
    [inwards] = BY_NAME["NetworkPolicy", "to-service"]["spec"]["ingress"]
    assert [one["port"] for one in inwards["ports"]] == [port["name"]]
    shut = BY_NAME["NetworkPolicy", "nothing"]["spec"]
    assert (shut["podSelector"], set(shut["policyTypes"])) == ({}, {"Ingress", "Egress"})
    [url] = re.findall(r"url='([^']+)'", FILE.read_text())
    [node] = parse(url).nodes
    to_store, _ = BY_NAME["NetworkPolicy", "to-store"]["spec"]["egress"]
    assert [one["port"] for one in to_store["ports"]] == [node[1]]
    for name in ("acker", "acker-ticker"):
        labels = BY_NAME["Deployment", name]["spec"]["template"]["metadata"]["labels"]
        for policy in ("to-store", *(("to-service",) if name == "acker" else ())):
            chosen = BY_NAME["NetworkPolicy", policy]["spec"]["podSelector"]["matchLabels"]
            assert chosen.items() <= labels.items(), (name, policy)


@pytest.mark.parametrize("name", ["acker", "acker-ticker"])
def test_its_pods_have_no_right_that_they_do_not_need(name: str) -> None:
    outer, inner = pod(name)["securityContext"], container(name)["securityContext"]
    user = re.search(r"^USER (\d+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert user is not None
    assert (outer["runAsUser"], outer["runAsNonRoot"]) == (int(user[1]), True)
    assert inner == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert pod(name)["automountServiceAccountToken"] is False
    assert "memory" in container(name)["resources"]["limits"]
    for variable in container(name)["env"]:
        if variable["name"] == "ACKER_URL":
            assert "secretKeyRef" in variable["valueFrom"]


def test_its_tokens_are_a_file_of_the_volume_that_a_secret_makes() -> None:
    service = container("acker")
    [file] = [one["value"] for one in service["env"] if one["name"] == "ACKER_TOKENS_FILE"]
    mounts = {mount["mountPath"]: mount for mount in service["volumeMounts"]}
    mount = mounts[str(Path(file).parent)]
    assert "subPath" not in mount, "such a file never changes"
    [volume] = [one for one in pod("acker")["volumes"] if one["name"] == mount["name"]]
    assert (
        f"secret generic {volume['secret']['secretName']} --from-file={Path(file).name}" in FILE.read_text()
    )
