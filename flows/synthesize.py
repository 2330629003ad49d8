"""From a raw table to a published synthetic one: each step is a Prefect task, and the ledger guards them all."""

from typing import Any

from prefect.runtime import flow_run

from dpcore import Synthesis, step_name
from flows.private import private_flow, step


@private_flow(name="synthesize", flow_run_name="synthesize-{spec}")
def synthesize(spec: str, resume: str | None = None) -> dict[str, Any]:
    """Make a release from a release spec.

    Args:
        spec: The release spec's file.
        resume: The id of an interrupted run to go on with. A retried flow run goes on by itself.
    """
    run = Synthesis(spec, run_id=resume or str(flow_run.id), resume=resume is not None)
    try:
        step("reserve", run.reserve)()
        records = step("ingest", run.ingest)()
        step("histogram", run.histogram)(records)
        step("begin", run.begin)()
        for number in range(1, run.strategy.rounds + 1):
            if run.strategy.finished:
                break
            selection = step(step_name(number, "select"), run.select)(number)
            measurement = step(step_name(number, "measure"), run.measure)(number, selection)
            step(step_name(number, "update"), run.update)(number, measurement)
        rows = step("sample", run.sample)()
        step("publish", run.publish)(rows)
        outcome = step("settle", run.settle)()
    finally:
        run.close()
    return outcome.to_json()
