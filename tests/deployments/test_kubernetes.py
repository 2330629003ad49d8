"""The base job template and the manifests for Kubernetes: accepted by Prefect, and closed."""

import json
import re
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import yaml

from tests.deployments.facts import DEPLOYMENTS, TEMPLATE, image_environment, known_variables, prefect_says

Pod = dict[str, Any]

# A work pool of this type is served by prefect-kubernetes. Its worker (0.8.0, `_get_base_job_manifest`) rejects a job whose *pod* lacks
# these, though the first two belong to the job: Kubernetes drops them there, and reads them where the job has them.
ASKED_FOR = {"parallelism": 1, "completions": 1, "restartPolicy": "Never"}
OF_THE_JOB = {"parallelism": 1, "completions": 1, "backoffLimit": 0}
OF_ITS_WORKER = re.compile(r"PREFECT_INTEGRATIONS_KUBERNETES_(WORKER|OBSERVER)_[A-Z_]+")


@pytest.fixture(scope="module")
def template() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(TEMPLATE.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def manifests() -> dict[tuple[str, str], dict[str, Any]]:
    text = (DEPLOYMENTS / "kubernetes" / "dpflow.yaml").read_text(encoding="utf-8")
    return {(it["kind"], it["metadata"]["name"]): it for it in yaml.safe_load_all(text)}


@pytest.fixture(scope="module")
def run_pod(template: dict[str, Any]) -> Pod:
    pod: Pod = template["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]
    return pod


@pytest.fixture(scope="module")
def worker_pod(manifests: dict[tuple[str, str], dict[str, Any]]) -> Pod:
    pod: Pod = manifests["Deployment", "worker"]["spec"]["template"]["spec"]
    return pod


def test_prefect_takes_the_template_and_refuses_one_with_an_undeclared_variable(template: dict[str, Any]) -> None:
    undeclared = deepcopy(template)
    undeclared["job_configuration"]["job_manifest"]["metadata"]["namespace"] = "{{ namespace }}"
    without = {"job_configuration": template["job_configuration"]}
    said = prefect_says(template, undeclared, without)
    taken, *refused = said["refusals"]
    assert taken is None
    assert "undeclared variable(s): namespace" in refused[0]
    assert "must contain both" in refused[1]
    assert template["job_configuration"].keys() <= said["kubernetes"]["job_configuration"].keys()


def test_a_deployment_may_change_how_large_its_jobs_are_and_nothing_else(template: dict[str, Any]) -> None:
    placeholders = set(re.findall(r"\{\{ (\w+) \}\}", json.dumps(template["job_configuration"])))
    assert placeholders == set(template["variables"]["properties"]) == {"cpu", "memory"}
    assert all("default" in variable for variable in template["variables"]["properties"].values())
    assert "env" not in template["job_configuration"]  # a dictionary there would take whatever a deployment adds


def test_the_job_is_one_that_prefects_worker_accepts(run_pod: Pod, template: dict[str, Any]) -> None:
    assert run_pod.items() >= ASKED_FOR.items()
    job = template["job_configuration"]["job_manifest"]
    assert (job["apiVersion"], job["kind"], job["metadata"]["namespace"]) == ("batch/v1", "Job", "dpflow")
    # A crashed run is restarted by Prefect, which counts the restarts, and not by Kubernetes.
    assert job["spec"].items() >= OF_THE_JOB.items()
    assert [container["name"] for container in run_pod["containers"]] == ["prefect-job"]


def open_doors(pod: Pod) -> list[str]:
    """Return what a pod may do that it need not."""
    found = []
    own = pod["securityContext"]
    if own.get("runAsNonRoot") is not True or not own.get("runAsUser") or not own.get("runAsGroup"):
        found.append("root")
    if own.get("seccompProfile") != {"type": "RuntimeDefault"}:
        found.append("seccomp")
    found += [key for key in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace") if pod.get(key)]
    found += [volume["name"] for volume in pod["volumes"] if "hostPath" in volume]
    for container in pod["containers"]:
        closed = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
        found += ["container"] if container["securityContext"] != closed else []
        found += ["resources"] if container["resources"].keys() != {"requests", "limits"} else []
        found += ["image"] if not re.fullmatch(r"[a-z/]+:\d+\.\d+\.\d+[-a-z0-9.]*", container["image"]) else []
        plain = {it["name"] for it in container["env"] if re.search(r"PASSWORD|AUTH_STRING$|TOKEN", it["name"])}
        found += sorted(plain)
    return found


@pytest.mark.parametrize("which", ["run_pod", "worker_pod"])
def test_a_pod_has_no_door_open(which: str, request: pytest.FixtureRequest) -> None:
    assert open_doors(request.getfixturevalue(which)) == []


@pytest.mark.parametrize(
    ("door", "change"),
    [
        ("root", lambda pod: pod["securityContext"].update(runAsUser=0)),
        ("seccomp", lambda pod: pod["securityContext"].pop("seccompProfile")),
        ("hostNetwork", lambda pod: pod.update(hostNetwork=True)),
        ("data", lambda pod: pod["volumes"].append({"name": "data", "hostPath": {"path": "/"}})),
        ("container", lambda pod: pod["containers"][0]["securityContext"].update(readOnlyRootFilesystem=False)),
        ("resources", lambda pod: pod["containers"][0]["resources"].pop("limits")),
        ("image", lambda pod: pod["containers"][0].update(image="dpflow:latest")),
        ("PGPASSWORD", lambda pod: pod["containers"][0]["env"].append({"name": "PGPASSWORD", "value": "pw"})),
    ],
)
def test_an_open_door_is_noticed(door: str, change: Callable[[Pod], object], run_pod: Pod) -> None:
    worse = deepcopy(run_pod)
    change(worse)
    assert open_doors(worse) == [door]


def test_a_run_writes_only_where_it_must_and_has_no_token(run_pod: Pod) -> None:
    (container,) = run_pod["containers"]
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"/releases", "/private", "/tmp"}  # noqa: S108  in the container
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in run_pod["volumes"]}
    assert run_pod["automountServiceAccountToken"] is False


def test_the_private_folder_is_below_its_volume_which_kubernetes_opens_to_the_group(run_pod: Pod) -> None:
    (container,) = run_pod["containers"]
    environment = {it["name"]: it["value"] for it in container["env"]}
    assert environment["DPFLOW_PRIVATE"] == "/private/dpflow"
    assert environment["DPFLOW_REGISTRY"] == "/registry"  # with both, a ledger in a database can be written to
    assert run_pod["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"


def test_every_secret_is_a_file_that_the_command_reads(run_pod: Pod) -> None:
    (container,) = run_pod["containers"]
    read = container["command"][1 : container["command"].index("--")]
    (secret,) = [volume["secret"] for volume in run_pod["volumes"] if "secret" in volume]
    assert sorted(item["path"] for item in secret["items"]) == sorted(read)
    assert secret["defaultMode"] == 0o440
    assert container["command"][0] == "with-secrets"


@pytest.mark.parametrize("which", ["run_pod", "worker_pod"])
def test_every_variable_of_a_pod_is_known(which: str, request: pytest.FixtureRequest) -> None:
    (container,) = request.getfixturevalue(which)["containers"]
    names = {it["name"] for it in container["env"]}
    assert {name for name in names - known_variables() if not OF_ITS_WORKER.fullmatch(name)} == set()
    assert not names & {name for name in image_environment() if name.startswith("PREFECT_LOGGING")}


def test_the_worker_makes_jobs_and_reads_neither_secrets_nor_what_pods_print(
    manifests: dict[tuple[str, str], dict[str, Any]], worker_pod: Pod
) -> None:
    allowed = {resource for rule in manifests["Role", "worker"]["rules"] for resource in rule["resources"]}
    assert allowed == {"jobs", "pods"}
    (container,) = worker_pod["containers"]
    environment = {it["name"]: it["value"] for it in container["env"]}
    kept = "PREFECT_INTEGRATIONS_KUBERNETES_"
    assert environment[f"{kept}OBSERVER_FORWARD_CRASHED_RUN_LOGS"] == "false"
    assert environment[f"{kept}WORKER_API_AUTH_STRING_SECRET_NAME"] == "dpflow-run"
    (secret,) = [volume["secret"] for volume in worker_pod["volumes"] if "secret" in volume]
    assert [item["key"] for item in secret["items"]] == ["auth-string"]  # and not the ledger's password


def test_every_pod_is_under_a_network_policy_that_lets_nobody_in(
    manifests: dict[tuple[str, str], dict[str, Any]],
) -> None:
    closed = manifests["NetworkPolicy", "closed"]["spec"]
    assert (closed["podSelector"], closed["policyTypes"]) == ({}, ["Ingress", "Egress"])
    assert "ingress" not in closed
    labels = manifests["Namespace", "dpflow"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def open_ways(policy: dict[str, Any]) -> list[str]:
    """Return the ways out of a pod that lead to more than one address, or to every port of one."""
    found = []
    for rule in policy["spec"]["egress"]:
        if not rule.get("to") or not rule.get("ports"):
            found.append("anywhere")
        for peer in rule.get("to", ()):
            if "ipBlock" in peer:
                single = re.fullmatch(r"[\d.]+/32|[0-9a-f:]+/128", peer["ipBlock"]["cidr"])
                found += [] if single else [peer["ipBlock"]["cidr"]]
            elif not peer.get("namespaceSelector") or not peer.get("podSelector"):
                found.append("every pod")
    return found


@pytest.mark.parametrize("name", ["closed", "run", "worker"])
def test_a_pod_calls_single_addresses_only(name: str, manifests: dict[tuple[str, str], dict[str, Any]]) -> None:
    assert open_ways(manifests["NetworkPolicy", name]) == []


@pytest.mark.parametrize(
    ("way", "rule"),
    [
        ("anywhere", {"ports": [{"port": 443}]}),
        ("anywhere", {"to": [{"ipBlock": {"cidr": "192.0.2.10/32"}}]}),
        ("0.0.0.0/0", {"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}], "ports": [{"port": 443}]}),
        ("every pod", {"to": [{"podSelector": {}}], "ports": [{"port": 443}]}),
    ],
)
def test_an_open_way_out_is_noticed(
    way: str, rule: dict[str, Any], manifests: dict[tuple[str, str], dict[str, Any]]
) -> None:
    worse = deepcopy(manifests["NetworkPolicy", "run"])
    worse["spec"]["egress"].append(rule)
    assert open_ways(worse) == [way]
