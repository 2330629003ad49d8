"""Execute one run for a worker: `python -P -m flows.worker.execute [RUN]`, or the run that `PREFECT__FLOW_RUN_ID` names.

Prefect's own program for this loads any code that the server names, runs the pull steps that the server lists, and reads results from
any place that the server names. This one asks the server only which of our flows to run with which parameters. All printed output, of
any library, goes to the steward's log.
"""

import os
import sys
import traceback
from contextlib import suppress
from inspect import signature
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.client.schemas import FlowRun
from prefect.exceptions import ParameterTypeError
from pydantic import JsonValue

from dpcore.errors import UsageError
from dpcore.private_log import output_taken
from flows.deploy.deployments import FLOWS
from flows.form import form_fields
from flows.prefect_compat import configure_from_env, handle_engine_signals, run_flow
from flows.tasks.progress import send_buffered
from flows.tasks.refusals import refused_state

RESULTS = "results"
"""The part of the run's temporary folder in which Prefect stores the public errors of a failed run."""


def main() -> None:
    """Execute the run, then exit at once. Output during the exit of Python goes to the steward's log, too."""
    with output_taken():
        code = 1
        try:
            code = execute(UUID(sys.argv[1] if len(sys.argv) > 1 else os.environ["PREFECT__FLOW_RUN_ID"]))
        except BaseException:  # noqa: BLE001  no error may escape to the terminal
            traceback.print_exc()
        finally:
            with suppress(Exception):  # the server may be gone
                send_buffered(within=10.0)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def execute(run_id: UUID) -> int:
    """Execute a run, and return 0 if the server knows its state: ended, suspended or refused."""
    configure_from_env()  # the channel on which the worker announces a cancellation
    try:
        with handle_engine_signals(run_id):
            with get_client(sync_client=True) as client:
                run = client.read_flow_run(run_id)
                flow = FLOWS.get(client.read_flow(run.flow_id).name)
                try:
                    flow = _checked(run, flow)
                except UsageError as error:
                    client.set_flow_run_state(run_id, refused_state(error))
                    return 0
            # The result folder is set here, because otherwise the server would choose one. The state is returned instead of the
            # result: for a run that the server reports as completed, the result would be a pickle at a place of the server's choice.
            run_flow(
                flow.with_options(result_storage=Path(RESULTS).absolute()),
                flow_run=run,
                parameters=_parameters(run, flow),
                return_type="state",
            )
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def _checked(run: FlowRun, flow: Flow[..., Any] | None) -> Flow[..., Any]:
    """Return the flow of a run, if it may be executed.

    Raises:
        UsageError: The run is not of one of our flows or deployments, or its parameters do not match the form.
    """
    if flow is None:
        raise UsageError(f"the run's flow is not one of dpflow's, which are {', '.join(FLOWS)}; start one of those")
    if run.deployment_id is None:
        raise UsageError("the run comes from no deployment; start it from one, or call `dpflow run`")
    unknown = sorted(run.parameters.keys() - form_fields(flow))
    if unknown:
        raise UsageError(f"the flow {flow.name} has no parameter {unknown[0][:100]!r}; see its form")
    for name, value in run.parameters.items():
        # Prefect would treat a dictionary as a reference to an object on the server, and load that.
        if not _is_plain(value):
            raise UsageError(
                f"the parameter {name} is neither a number nor text, nor a list of texts; see the form of the flow {flow.name}"
            )
    try:
        flow.validate_parameters(run.parameters)
    except (ParameterTypeError, TypeError) as error:
        lines = str(error).splitlines()  # a heading, then one line for each parameter
    else:
        return flow
    reasons = "; ".join(line.removeprefix(" - ") for line in lines[1:] or lines)
    raise UsageError(f"the flow {flow.name} can't be run with these parameters, see its form: {reasons}")


def _parameters(run: FlowRun, flow: Flow[..., Any]) -> dict[str, Any]:
    """Return the arguments for the flow of a checked run, with the mark that they come from a server."""
    form = signature(flow.fn)
    marked = {"untrusted": True} if "untrusted" in form.parameters else {}
    call = form.bind(**run.parameters | marked)
    call.apply_defaults()
    return call.arguments


def _is_plain(value: JsonValue) -> bool:
    if isinstance(value, list):
        return all(isinstance(item, str) for item in value)
    return value is None or isinstance(value, str | bool | int | float)


if __name__ == "__main__":
    main()
