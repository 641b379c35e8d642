"""The sketch for Kubernetes is one that a cluster would take, and its parts fit each other and the image."""

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from ruamel.yaml import YAML

from mew import __version__
from mew.config.loader import load_config
from mew.config.models import GatewayConfig
from mew.config.tokens import TokenStore
from mew.gateway.journaling import SEALING_SECONDS
from mew.protocol.authentication import Identity
from tests.deploy.dockerfile import read
from tests.gateway.raw import running_from

ROOT = Path(__file__).resolve().parents[2]
SKETCH = ROOT / "deploy" / "kubernetes.yaml"
OBJECTS: Final[dict[str, Any]] = {
    document["kind"]: document for document in YAML(typ="safe", pure=True).load_all(SKETCH.read_text(encoding="utf-8"))
}
POD = OBJECTS["StatefulSet"]["spec"]["template"]["spec"]
(GATEWAY,) = POD["containers"]
JOB = OBJECTS["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
(PIPELINE,) = JOB["containers"]
PROBES = [GATEWAY[name] for name in ("startupProbe", "readinessProbe", "livenessProbe")]


@pytest.fixture
def space(tmp_path: Path) -> Iterator[Path]:
    """The space.yaml of the ConfigMap, as a file."""
    file = tmp_path / "space.yaml"
    file.write_text(OBJECTS["ConfigMap"]["data"]["space.yaml"], encoding="utf-8")
    yield file


def configured(file: Path) -> GatewayConfig:
    return load_config([file], environ={})


def test_every_object_is_what_kubernetes_knows() -> None:
    command = [sys.executable, "-m", "kubernetes_validate", "--strict", "--quiet", str(SKETCH)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert list(OBJECTS) == ["ConfigMap", "Service", "StatefulSet", "CronJob"]


def test_one_gateway_at_a_time_has_the_journal() -> None:
    assert OBJECTS["StatefulSet"]["spec"]["replicas"] == 1
    assert OBJECTS["CronJob"]["spec"]["concurrencyPolicy"] == "Forbid"


def test_the_configuration_is_one_that_a_gateway_starts_with(space: Path) -> None:
    config = configured(space)
    assert config.warnings == ()
    assert (config.host, config.port) == ("0.0.0.0", GATEWAY["ports"][0]["containerPort"])


@pytest.mark.parametrize("text", [SKETCH, ROOT / "docs" / "deployment.md"], ids=lambda file: file.name)
def test_the_secret_of_the_instructions_has_the_token_of_a_participant(text: Path, space: Path) -> None:
    ((secret, variable),) = re.findall(
        r"kubectl create secret generic (\S+) --from-literal=(\w+)=\"\$\(openssl", text.read_text(encoding="utf-8")
    )
    assert GATEWAY["envFrom"] == [{"secretRef": {"name": secret}}]
    assert "optional" not in GATEWAY["envFrom"][0]["secretRef"], "without a Secret it must not start"
    tokens = TokenStore(configured(space).spaces, environ={variable: "a-token-of-32-random-characters."})
    assert tokens.identify("a-token-of-32-random-characters.") == Identity("lab", "alice")


@pytest.mark.parametrize("probe", PROBES, ids=["startup", "readiness", "liveness"])
def test_a_probe_is_answered(probe: dict[str, Any], space: Path) -> None:
    http_get = probe["httpGet"]
    ((name, host),) = [(header["name"], header["value"]) for header in http_get["httpHeaders"]]
    with running_from(space) as gateway, socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as peer:
        peer.sendall(f"GET {http_get['path']} HTTP/1.1\r\n{name}: {host}\r\nConnection: close\r\n\r\n".encode())
        assert peer.recv(4096).startswith(b"HTTP/1.1 200 ")
    assert http_get["port"] == GATEWAY["ports"][0]["name"]


def test_a_stop_leaves_the_time_to_seal() -> None:
    assert POD["terminationGracePeriodSeconds"] > SEALING_SECONDS + 5


def test_the_pods_run_as_the_user_of_the_image_and_may_do_little() -> None:
    user, group = read(ROOT / "deploy" / "Dockerfile")["gateway"].all("USER")[-1].rest.split(":")
    for pod in (POD, JOB):
        rights = pod["securityContext"]
        assert rights["runAsNonRoot"]
        assert (rights["runAsUser"], rights["runAsGroup"], rights["fsGroup"]) == (int(user), int(group), int(group))
        (container,) = pod["containers"]
        assert not container["securityContext"]["allowPrivilegeEscalation"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        # Something must be writable where nothing else is: Python and Spark want a /tmp.
        assert {"/space", "/tmp"} <= {mount["mountPath"] for mount in container["volumeMounts"]}


def test_the_images_are_of_this_version() -> None:
    assert [GATEWAY["image"], PIPELINE["image"]] == [f"mew:{__version__}", f"mew-pipeline:{__version__}"]


def test_the_pipeline_has_the_disk_of_the_gateway_and_goes_where_it_is() -> None:
    (claim,) = OBJECTS["StatefulSet"]["spec"]["volumeClaimTemplates"]
    pod = f"{OBJECTS['StatefulSet']['metadata']['name']}-0"
    volumes = {volume["name"]: volume for volume in JOB["volumes"]}
    assert volumes["space"]["persistentVolumeClaim"]["claimName"] == f"{claim['metadata']['name']}-{pod}"
    (rule,) = JOB["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    labels = OBJECTS["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert rule["labelSelector"]["matchLabels"].items() <= labels.items()
    assert OBJECTS["Service"]["spec"]["selector"] == OBJECTS["StatefulSet"]["spec"]["selector"]["matchLabels"] == labels
