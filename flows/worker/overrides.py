"""What a server asks for that is not for it to decide: other code, another command, environment or folder for a run.

Prefect's own worker does all of it, as the user who may read the raw tables. Ours does none of it in any case; this is where a run
that asks for it is told apart, so that it can be refused with a reason and not be executed as something else.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from prefect.client.schemas import FlowRun
from prefect.client.schemas.responses import DeploymentResponse

from flows.deploy.deployments import ENGINE, FLOWS, entrypoint

OBEYED = {"command": "a command", "env": "an environment", "working_dir": "a working folder"}
"""The variables of a job that Prefect's own worker follows when it starts a process, and what they are."""


def foreign_wishes(
    run: FlowRun, deployment: DeploymentResponse | None, *, flow: str, template: Mapping[str, Any]
) -> list[str]:
    """Return what a run asks for that no server decides here, each in a few public words; nothing, if it is to be executed.

    Args:
        run: The run as the server describes it.
        deployment: Where it comes from.
        flow: The name of its flow.
        template: The base job template of the work pool.
    """
    found = [f"{wish} in the job variables of the run" for wish in _variables(run.job_variables)]
    if flow not in FLOWS:
        found.append("a flow that is none of dpflow's")
    if deployment is None:
        return [*found, "to be run without a deployment"]
    found += [f"{wish} in the job variables of the deployment" for wish in _variables(deployment.job_variables)]
    if flow in FLOWS and deployment.entrypoint != entrypoint(FLOWS[flow]):
        found.append("another entrypoint")
    if deployment.path or deployment.storage_document_id or deployment.infrastructure_document_id:
        found.append("code from another place")
    if deployment.pull_steps:
        found.append("pull steps")
    return found + [f"{wish} in the template of the work pool" for wish in _fixed(template)]


def _variables(values: Mapping[str, Any] | None) -> Iterator[str]:
    """Return the job variables that would be obeyed and are not what we deploy; `env.NAME` is another way to write one of env."""
    for key, value in (values or {}).items():
        name = key.partition(".")[0]
        if name in OBEYED and value and (name, value) != ("command", ENGINE):
            yield OBEYED[name]


def _fixed(template: Mapping[str, Any]) -> Iterator[str]:
    """Return the variables to which a template gives a value of its own."""
    job = template.get("job_configuration") or {}
    variables = (template.get("variables") or {}).get("properties") or {}
    for name, wish in OBEYED.items():
        given = job.get(name)
        if (given and given != f"{{{{ {name} }}}}") or (variables.get(name) or {}).get("default"):
            yield wish
