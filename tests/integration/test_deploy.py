# SPDX-License-Identifier: Apache-2.0
"""What deploy/ promises: files that their tools accept, that agree with each other and with the commands that there are."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from pinq.cli.main import app
from tests.support.house.checkout import ROOT
from tests.support.processes import helm_charts as charts

DEPLOY = ROOT / "deploy"
PAGES = ("policy", "serving", "operating", "sign-in", "heads", "spark")
POLICY = "dataset: people\nsource: /data/people.parquet\nledger: postgresql+psycopg://pinq@db/people\n"
SIGN_IN = "sign_in: {issuer: https://id.example.org, client: pinq}\n"
VALUES: dict[str, Any] = {
    "image": {"repository": "registry.example/pinq"},
    "policies": {"people.yaml": POLICY},
    "tls": {"secret": "pinq-tls"},
    "data": {"claim": "tables"},
    "database": {
        "secret": "pinq-database",
        "authority": "database-ca",
        "podLabels": {"app": "postgres"},
        "cidrs": ["192.0.2.0/24"],
    },
    "networkPolicy": {"namespaceLabels": {"analysts": "yes"}, "cidrs": ["192.0.2.0/24"]},
    "podAnnotations": {"a": "b"},
    "extraArgs": ["--rate=50"],
}


def serve_options() -> set[str]:
    """The options that ``pinq serve`` has."""
    serve: Any = get_command(app).commands["serve"]  # type: ignore[attr-defined]
    return {option for parameter in serve.params for option in parameter.opts}


def options_in(words: list[str]) -> set[str]:
    return {word.split("=")[0] for word in words if word.startswith("--")}


def compose() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
    return content


def objects(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {f"{thing['kind']}/{thing['metadata']['name']}": thing for thing in charts.render(values)}


def test_the_image_runs_as_nobody_special_and_answers_for_its_health() -> None:
    """What is copied into it exists, it ends as a user who is not root, and its command is one that there is."""
    text = (DEPLOY / "Containerfile").read_text()
    stages = text.split("\nFROM ")
    assert len(stages) == 3
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE):
        assert all((ROOT / name).exists() for name in line.split()[:-1]), line
        kept = (ROOT / ".dockerignore").read_text().split()
        assert all(f"!{name}" in kept for name in line.split()[:-1])
    assert re.findall(r"^USER (.*)$", stages[-1], re.MULTILINE) == ["10001:10001"]
    assert "/healthz" in stages[-1][stages[-1].index("HEALTHCHECK") :]
    command = json.loads(re.findall(r"^CMD (\[.*\])$", stages[-1], re.MULTILINE)[0])
    assert command[0] == "serve"
    assert options_in(command) <= serve_options()
    subprocess.run(["sh", "-n", str(DEPLOY / "build")], check=True)


def test_the_compose_file_keeps_the_server_in() -> None:
    """A read-only root, no capability, no database that others reach, and only options that there are."""
    content = compose()
    server, database = content["services"]["pinq"], content["services"]["postgres"]
    assert server["read_only"]
    assert server["cap_drop"] == ["ALL"]
    assert server["security_opt"] == ["no-new-privileges:true"]
    assert "ports" not in database
    assert content["networks"]["inside"] == {"internal": True}
    assert options_in(server["command"]) <= serve_options()
    proxy = content["services"]["proxy"]
    assert proxy["network_mode"] == "service:pinq"  # else the server's plain HTTP would leave its machine
    assert {"--insecure-http", "--proxy=127.0.0.1", "--port=8080"} <= set(server["command"])
    named = set(re.findall(r"\$\{(\w+)\}", (DEPLOY / "proxy" / "haproxy.cfg").read_text()))
    assert set(proxy["environment"]) == named
    used = set(re.findall(r"\$\{(\w+)", (DEPLOY / "compose" / "compose.yaml").read_text()))
    assert used == set(re.findall(r"^(\w+)=", (DEPLOY / "compose" / "env.example").read_text(), re.MULTILINE))
    volumes = {volume.split(":")[0] for service in content["services"].values() for volume in service["volumes"]}
    assert {volume for volume in volumes if not volume.startswith(".")} == set(content["volumes"])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="NO SYSTEMD: nothing checks the unit")
def test_the_unit_is_one_and_is_hardened(tmp_path: Path) -> None:
    """systemd finds nothing wrong with it but that the command is not installed here, and rates its exposure as low."""
    unit = DEPLOY / "systemd" / "pinq.service"
    installed = tmp_path / "pinq.service"
    installed.write_text(unit.read_text().replace("/opt/pinq/bin/pinq", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(installed)], capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if "pinq.service" in line] == []
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(installed)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert rated.returncode == 0, rated.stdout[-300:]


def test_the_unit_uses_options_that_there_are() -> None:
    """Also those of the file of settings."""
    unit = (DEPLOY / "systemd" / "pinq.service").read_text()
    words = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)[0].split()
    settings = re.findall(r"^PINQ_OPTIONS=(.*)$", (DEPLOY / "systemd" / "pinq.env").read_text(), re.MULTILINE)[
        0
    ].split()
    assert options_in(words) | options_in(settings) <= serve_options()
    log = re.findall(r"--log (\S+)", unit)[0]
    assert (DEPLOY / "systemd" / "pinq.logrotate").read_text().split("\n")[1] == f"{log} {{"


def test_the_chart_makes_what_a_cluster_needs() -> None:
    """Two replicas that are not root, probes that ask what each is for, a budget of disruptions, and a network that is closed otherwise."""
    assert charts.lint() == ""
    made = objects(VALUES)
    assert set(made) == {
        "ConfigMap/demo-policies",
        "NetworkPolicy/demo",
        "PodDisruptionBudget/demo",
        "Service/demo",
        "Service/demo-pods",
        "ServiceAccount/demo",
        "StatefulSet/demo",
    }
    state = made["StatefulSet/demo"]["spec"]
    pod = state["template"]["spec"]
    (container,) = pod["containers"]
    assert state["replicas"] == 2
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert options_in(container["args"]) <= serve_options()
    assert container["args"][-1] == "--rate=50"
    assert container["env"][0]["valueFrom"]["secretKeyRef"] == {"name": "pinq-database", "key": "password"}
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    volumes = {
        volume["name"] for volume in pod["volumes"] + [claim["metadata"] for claim in state["volumeClaimTemplates"]]
    }
    assert mounted == volumes
    labels = state["template"]["metadata"]["labels"]
    for selector in (state["selector"], made["PodDisruptionBudget/demo"]["spec"]["selector"]):
        assert selector["matchLabels"].items() <= labels.items()
    network = made["NetworkPolicy/demo"]["spec"]
    assert network["policyTypes"] == ["Ingress", "Egress"]
    assert [rule["ports"][0]["port"] for rule in network["egress"]] == [53, 5432, 5432]
    assert made["ConfigMap/demo-policies"]["data"] == VALUES["policies"]


def test_the_chart_is_valid_with_the_least_that_must_be_given() -> None:
    """Nothing but an image, a policy and a certificate; and one replica keeps a ledger of its own."""
    least = {"image": VALUES["image"], "tls": VALUES["tls"], "policies": {"a.yaml": "dataset: a\n"}, "replicas": 1}
    made = objects(least)
    (container,) = made["StatefulSet/demo"]["spec"]["template"]["spec"]["containers"]
    assert "env" not in container


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"image": {}}, "image.repository"),
        ({"tls": {}}, "tls.secret"),
        ({"policies": {}}, "policies"),
        ({"policies": {"people.yaml": "dataset: people\n"}}, "a budget, of its own"),
        ({"policies": {"people.yaml": "dataset: people\n# ledger: postgresql+psycopg://db\n"}}, "a budget, of its own"),
        ({"policies": {"people.yaml": POLICY + "padding: 50ms\n"}}, "padding"),
        ({"policies": {"people.yaml": POLICY + SIGN_IN}}, "signIn.cidrs"),
    ],
)
def test_the_chart_refuses_what_would_not_be_safe(change: dict[str, Any], why: str) -> None:
    """Two pods with a ledger each would be two budgets for the same people."""
    with pytest.raises(charts.ChartError, match=why):
        charts.render(VALUES | change)


def test_the_chart_reads_policies_as_yaml() -> None:
    """A quoted URL is a URL, and a word in a comment is none; sign-in has its way out."""
    quoted = POLICY.replace("postgresql+psycopg://pinq@db/people", '"postgresql+psycopg://pinq@db/people"')
    text = quoted + "# padding: none\n" + SIGN_IN
    made = objects(VALUES | {"policies": {"people.yaml": text}, "signIn": {"cidrs": ["198.51.100.7/32"]}})
    egress = made["NetworkPolicy/demo"]["spec"]["egress"]
    assert {"ports": [{"protocol": "TCP", "port": 443}], "to": [{"ipBlock": {"cidr": "198.51.100.7/32"}}]} in egress


def test_the_image_has_the_extras_of_every_key_of_a_policy() -> None:
    """All that the pages on policies and servers name but Spark and ADBC, whose page says so; ``test_image_packages.py`` serves each key."""
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", (DEPLOY / "Containerfile").read_text())
    pages = [(ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in PAGES]
    named = {extra for page in pages for words in re.findall(r"'\.\[([\w,]+)\]'", page) for extra in words.split(",")}
    assert {"server", "statistical", "spark", "heads"} <= named
    assert named - set(extras.split(",")) == {"spark", "adbc"}
    assert set(extras.split(",")) <= named | {"arrow"}
    assert "The image has no Spark and no ADBC" in pages[-1]


@pytest.mark.skipif(
    importlib.util.find_spec("kubernetes_validate") is None, reason="pip install kubernetes-validate checks the schemas"
)
def test_a_cluster_would_take_the_charts_objects() -> None:
    """They fit the schemas of Kubernetes' own interface, strictly."""
    import kubernetes_validate

    for values in (
        VALUES,
        {"image": VALUES["image"], "tls": VALUES["tls"], "policies": {"a.yaml": "dataset: a\n"}, "replicas": 1},
    ):
        for thing in charts.render(values):
            kubernetes_validate.validate(thing, "1.30", strict=True)
