"""Find overrides that a server may not make: other code, or another command, environment or folder for a run.

Prefect's own worker applies all of them, as the user who may read the raw tables. Ours applies none. A run that asks for one is
refused with a reason, instead of being executed without the override.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from prefect.client.schemas import FlowRun
from prefect.client.schemas.responses import DeploymentResponse

from flows.deploy.deployments import ENGINE, FLOWS, entrypoint

OVERRIDABLE = {"command": "a command", "env": "an environment", "working_dir": "a working folder"}
"""The job variables that Prefect's own worker lets a server override, and what they are."""


def disallowed_overrides(
    run: FlowRun, deployment: DeploymentResponse | None, *, flow: str, template: Mapping[str, Any]
) -> list[str]:
    """Return the disallowed overrides of a run, each in a few public words. A run without any may be executed.

    Args:
        run: The run as the server describes it.
        deployment: The deployment of the run, if it has one.
        flow: The name of its flow.
        template: The base job template of the work pool.
    """
    overrides = [f"{override} in the job variables of the run" for override in _variables(run.job_variables)]
    if flow not in FLOWS:
        overrides.append("a flow that is not one of dpflow's")
    if deployment is None:
        return [*overrides, "to be executed without a deployment"]
    overrides += [
        f"{override} in the job variables of the deployment" for override in _variables(deployment.job_variables)
    ]
    if flow in FLOWS and deployment.entrypoint != entrypoint(FLOWS[flow]):
        overrides.append("another entrypoint")
    if deployment.path or deployment.storage_document_id or deployment.infrastructure_document_id:
        overrides.append("code from another place")
    if deployment.pull_steps:
        overrides.append("pull steps")
    return overrides + [f"{override} in the template of the work pool" for override in _fixed(template)]


def _variables(values: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the job variables that override what we deploy. `env.NAME` is another way to set a variable of `env`."""
    for key, value in (values or {}).items():
        name = key.partition(".")[0]
        if name in OVERRIDABLE and value and (name, value) != ("command", ENGINE):
            yield OVERRIDABLE[name]


def _fixed(template: Mapping[str, Any]) -> Iterator[str]:
    """Yield the variables that a template sets to a value of its own."""
    job = template.get("job_configuration") or {}
    variables = (template.get("variables") or {}).get("properties") or {}
    for name, override in OVERRIDABLE.items():
        value = job.get(name)
        if (value and value != f"{{{{ {name} }}}}") or (variables.get(name) or {}).get("default"):
            yield override
