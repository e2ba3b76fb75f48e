"""The Helm chart, rendered by Helm's own engine, and checked by the schemas of Kubernetes."""

from __future__ import annotations

from pathlib import Path

import helm_python
import kubernetes_validate
import pytest
import yaml
from tests.test_deploy import CHART

ALL = {
    "board": {"enabled": True, "url": "https://board.example.org"},
    "serviceMonitor": {"enabled": True},
    "worker": {"agents": ["crew:clerk", "crew:cook"]},
    "imagePullSecrets": [{"name": "registry"}],
    "gateway": {"config": 'heartbeat = 5.0\n# "quotes" and {{ braces }}\n'},
}


def rendered(values=None):
    texts = helm_python.Chart.load(CHART).render(values or {}, name="x", namespace="agents")
    found = [
        each for name, text in texts.items() if name.endswith(".yaml") for each in yaml.safe_load_all(text) if each
    ]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def pod(manifest):
    return manifest["spec"]["template"]["spec"]


@pytest.mark.parametrize("values", [{}, ALL])
@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_each_manifest_is_one_of_kubernetes(values, version):
    for (kind, _), manifest in rendered(values).items():
        if kind != "ServiceMonitor":  # Prometheus' own kind
            kubernetes_validate.validate(manifest, version, strict=True)


def test_the_linter_finds_nothing():
    report = helm_python.lint(CHART, ALL, strict=True)
    assert report["errors"] == []
    assert [each["error"] for each in report["messages"]] == ["icon is recommended"]


def test_what_is_optional_is_absent_by_default():
    kinds = {kind for kind, _ in rendered()}
    assert kinds == {"ConfigMap", "Deployment", "Job", "PodDisruptionBudget", "Service"}
    assert ("Deployment", "x-board") not in rendered()


@pytest.mark.parametrize("values", [{}, ALL])
def test_every_pod_keeps_to_the_restricted_standard(values):
    pods = [pod(each) for (kind, _), each in rendered(values).items() if kind in {"Deployment", "Job"}]
    assert len(pods) >= 3
    for each in pods:
        assert each["automountServiceAccountToken"] is False
        assert each["securityContext"]["runAsNonRoot"] is True
        assert each["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = each["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        writable = [each["mountPath"] for each in container["volumeMounts"] if not each.get("readOnly")]
        assert writable == ["/data", "/tmp"]
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in each["volumes"]}
        assert "env" not in container  # secrets are in the Secret alone


def test_values_reach_the_processes():
    manifests = rendered(ALL)
    (worker,) = pod(manifests["Deployment", "x-worker"])["containers"]
    assert worker["args"][-4:] == ["--agents", "crew:clerk", "--agents", "crew:cook"]
    assert manifests["ConfigMap", "x-gateway"]["data"]["gateway.toml"] == ALL["gateway"]["config"]
    (monitor,) = manifests["ServiceMonitor", "x-gateway"]["spec"]["endpoints"]
    assert (monitor["path"], monitor["port"]) == ("/metrics", "http")
    labels = manifests["Service", "x-gateway"]["spec"]["selector"]
    assert labels.items() <= manifests["Deployment", "x-gateway"]["spec"]["template"]["metadata"]["labels"].items()


def test_the_probes_ask_what_the_image_answers():
    manifests = rendered(ALL)
    (gateway,) = pod(manifests["Deployment", "x-gateway"])["containers"]
    assert {gateway[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")} == {"/ready"}
    for name in ("worker", "board"):
        command = pod(manifests["Deployment", f"x-{name}"])["containers"][0]["livenessProbe"]["exec"]["command"]
        assert command[1] in (Path(CHART).parents[2] / "Dockerfile").read_text("utf-8")


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"gateway": {"replica": 3}}, "replica"),
        ({"secret": ""}, "secret"),
        ({"worker": {"concurrency": 0}}, "concurrency"),
        ({"board": {"enabled": True}}, "board.url is the address that people open"),
    ],
)
def test_wrong_values_are_refused(values, why):
    with pytest.raises(helm_python.HelmError, match=why):
        rendered(values)
