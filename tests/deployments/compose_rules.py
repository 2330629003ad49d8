"""What compose.yaml promises, each as a function that finds what breaks the promise in a compose document."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from tests.deployments.facts import DEPLOYMENTS, image_environment, known_variables

Document = dict[str, Any]
Rule = Callable[[Document], Iterator[str]]

ONE_OFF = {"steward", "auditor"}
SECRET = re.compile(r"PASSWORD|AUTH_STRING|SECRET|TOKEN|API_KEY")
PERSON = re.compile(r"//(\w+)@")


def nobody_is_root(document: Document) -> Iterator[str]:
    for name, service in document["services"].items():
        if not re.fullmatch(r"[1-9]\d*:[1-9]\d*", str(service.get("user"))):
            yield f"{name} runs as {service.get('user')}"


def nothing_is_writable_but_tmp_and_volumes(document: Document) -> Iterator[str]:
    for name, service in document["services"].items():
        if service.get("read_only") is not True or "/tmp" not in service.get("tmpfs", []):  # noqa: S108  in the container
            yield f"{name} may write to its image, or has no /tmp"


def no_service_has_a_privilege(document: Document) -> Iterator[str]:
    more = {"privileged", "cap_add", "devices", "pid", "ipc", "userns_mode", "network_mode", "volumes_from"}
    for name, service in document["services"].items():
        if service.get("cap_drop") != ["ALL"] or service.get("security_opt") != ["no-new-privileges:true"]:
            yield f"{name} keeps capabilities or may gain some"
        yield from (f"{name} has {key}" for key in more & service.keys())


def every_service_has_limits_and_does_not_swap(document: Document) -> Iterator[str]:
    for name, service in document["services"].items():
        if not service.get("cpus") or not service.get("mem_limit") or not service.get("pids_limit"):
            yield f"{name} may take all of the machine"
        if service.get("memswap_limit") != service.get("mem_limit"):
            yield f"{name} may be swapped out to disk"


def images_are_pinned(document: Document) -> Iterator[str]:
    for name, service in document["services"].items():
        if not re.fullmatch(r"[a-z]+:\d+\.\d+(\.\d+)?(-[a-z]+)?", service.get("image", "")):
            yield f"{name} has the image {service.get('image')}"


def no_secret_is_in_the_environment(document: Document) -> Iterator[str]:
    for name, service in document["services"].items():
        for variable, value in service.get("environment", {}).items():
            is_file = variable.endswith("_FILE") and value.startswith("/run/secrets/")
            if (SECRET.search(variable) and not is_file) or re.search(r"//[^/@]*:[^/@]*@", str(value)):
                yield f"{name} has a secret in {variable}"


def secrets_are_files_that_git_ignores(document: Document) -> Iterator[str]:
    for name, secret in document["secrets"].items():
        if secret.keys() != {"file"} or not secret["file"].startswith("secrets/"):
            yield f"the secret {name} is not a file in secrets/"
    if "secrets/" not in (DEPLOYMENTS / ".gitignore").read_text(encoding="utf-8").split():
        yield "git does not ignore secrets/"


def every_secret_that_is_read_is_mounted_and_no_other(document: Document) -> Iterator[str]:
    for name, service in document["services"].items():
        mounted = {secret["target"] for secret in service.get("secrets", [])}
        yield from (
            f"{name} has the unknown secret {secret['source']}"
            for secret in service.get("secrets", [])
            if secret["source"] not in document["secrets"]
        )
        if mounted != _read_secrets(service):
            yield f"{name} reads {sorted(_read_secrets(service))} and has {sorted(mounted)}"


def _read_secrets(service: Document) -> set[str]:
    """Return the files in /run/secrets that a service's command, image or scripts read."""
    entrypoint = service.get("entrypoint", ["--"])
    wrapped = set(entrypoint[1 : entrypoint.index("--")])
    files = [str(value) for value in service.get("environment", {}).values()]
    scripts = [_source(volume) for volume in service.get("volumes", []) if volume.startswith("./")]
    texts = [(DEPLOYMENTS / script).read_text(encoding="utf-8") for script in scripts]
    return wrapped | set(re.findall(r"/run/secrets/(\w+)", " ".join(files + texts)))


def ports_are_open_on_loopback_only(document: Document) -> Iterator[str]:
    for name, service in document["services"].items():
        yield from (
            f"{name} opens {port}" for port in service.get("ports", []) if not str(port).startswith("127.0.0.1:")
        )


def the_server_sees_nothing_private(document: Document) -> Iterator[str]:
    server, ledger = document["services"]["server"], document["services"]["ledger-db"]
    if server.get("volumes"):
        yield "the server has volumes"
    if shared := set(server["networks"]) & set(ledger["networks"]):
        yield f"the server reaches the ledger by {shared}"
    theirs = {"auth-string", "prefect-db"}
    if {secret["source"] for secret in server["secrets"]} != theirs:
        yield "the server has other secrets than its own"


def the_private_folder_is_the_workers_alone(document: Document) -> Iterator[str]:
    holders = {
        name
        for name, service in document["services"].items()
        if any(_source(volume) == "private" for volume in service.get("volumes", []))
    }
    if holders != {"worker"}:
        yield f"the private folder is mounted into {sorted(holders)}"


def raw_data_is_read_only_and_the_registry_is_the_stewards(document: Document) -> Iterator[str]:
    writers = {"/data": set(), "/registry": {"steward"}, "/releases": {"worker"}}
    for name, service in document["services"].items():
        for volume in service.get("volumes", []):
            target, _, mode = volume.removeprefix(_source(volume)).strip(":").partition(":")
            if target in writers and (mode != "ro") != (name in writers[target]):
                yield f"{name} mounts {volume}"


def nothing_reaches_the_internet(document: Document) -> Iterator[str]:
    closed = {"com.docker.network.bridge.enable_ip_masquerade": "false"}
    for name, network in document["networks"].items():
        if not network.get("internal") and network.get("driver_opts") != closed:
            yield f"the network {name} leads out"
    for name, service in document["services"].items():
        if not service.get("networks") or not set(service["networks"]) <= set(document["networks"]):
            yield f"{name} is on Docker's own network"


def every_file_is_there(document: Document) -> Iterator[str]:
    for name, service in document["services"].items():
        sources = [_source(volume) for volume in service.get("volumes", [])]
        files = [DEPLOYMENTS / source for source in sources if source.startswith("./")]
        if build := service.get("build"):
            files.append(DEPLOYMENTS / build["context"] / build["dockerfile"])
        yield from (f"{name} needs {path.name}" for path in files if not path.is_file())
        for source in sources:
            if not source.startswith(("./", "${")) and source not in document["volumes"]:
                yield f"{name} mounts {source}, which is no volume of ours"


def every_variable_is_known(document: Document) -> Iterator[str]:
    for name, service in document["services"].items():
        entrypoint = service.get("entrypoint", ["--"])
        used = {*service.get("environment", {}), *entrypoint[1 : entrypoint.index("--")]}
        yield from (f"{name} sets {variable}, which nobody reads" for variable in used - known_variables())


def no_service_loosens_what_the_image_sets(document: Document) -> Iterator[str]:
    for name, service in document["services"].items():
        yield from (
            f"{name} sets {it} anew" for it in image_environment().keys() & service.get("environment", {}).keys()
        )


def what_runs_on_is_watched_and_restarted(document: Document) -> Iterator[str]:
    for name, service in document["services"].items():
        if name in ONE_OFF:
            if service.get("restart") != "no" or not service.get("profiles"):
                yield f"{name} is a command, and is started by itself"
        elif service.get("restart") != "unless-stopped" or not service.get("healthcheck", {}).get("test"):
            yield f"{name} is not watched, or not restarted"


def each_command_uses_the_login_of_its_role(document: Document) -> Iterator[str]:
    logins = {"worker": "runner", "steward": "steward", "auditor": "auditor"}
    for name, login in logins.items():
        service = document["services"][name]
        person = PERSON.search(service["environment"]["DPFLOW_LEDGER_URL"])
        password = [it["source"] for it in service["secrets"] if it["target"] == "PGPASSWORD"]
        if person is None or person[1] != login or password != [login]:
            yield f"{name} does not log in as {login}"


def _source(volume: str) -> str:
    """Return the part of `source:target:mode` before the first colon; a source like ${A:?words} has colons of its own."""
    matched = re.match(r"\$\{[^}]*\}|[^:]*", volume)
    return matched[0] if matched else volume


RULES: tuple[Rule, ...] = (
    nobody_is_root,
    nothing_is_writable_but_tmp_and_volumes,
    no_service_has_a_privilege,
    every_service_has_limits_and_does_not_swap,
    images_are_pinned,
    no_secret_is_in_the_environment,
    secrets_are_files_that_git_ignores,
    every_secret_that_is_read_is_mounted_and_no_other,
    ports_are_open_on_loopback_only,
    the_server_sees_nothing_private,
    the_private_folder_is_the_workers_alone,
    raw_data_is_read_only_and_the_registry_is_the_stewards,
    nothing_reaches_the_internet,
    every_file_is_there,
    every_variable_is_known,
    no_service_loosens_what_the_image_sets,
    what_runs_on_is_watched_and_restarted,
    each_command_uses_the_login_of_its_role,
)
