"""Does anybody outside learn that, when and how Prefect is used here?

What Prefect does by default, dpflow's own commands turn off: it is a leak only if somebody has turned it on, or if the
configured server does it.
"""

from flows.doctor.finding import Finding, leak, ok, warning
from flows.doctor.machine import Machine
from flows.doctor.origin import mend, origin

NO = {"1", "true", "yes"}
BY_HAND = "unless dpflow starts it"
COLLECTORS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def usage_reports(machine: Machine) -> Finding:
    """Look whether Prefect's client reports to its makers."""
    chosen = machine.environ.get("DO_NOT_TRACK")
    if (chosen or "").lower() in NO:
        return ok("the client reports nothing")
    if chosen:
        return leak("DO_NOT_TRACK is set to let Prefect's client report to its makers", "export DO_NOT_TRACK=1")
    return warning(f"Prefect's client reports to its makers {BY_HAND}", "export DO_NOT_TRACK=1")


def server_analytics(machine: Machine) -> Finding:
    """Look whether the server reports to its makers."""
    return _switch(machine, "server.analytics_enabled", "the server reports to Prefect's makers")


def new_pages(machine: Machine) -> Finding:
    """Look whether the newer pages are shown, which call an analytics host from the browser."""
    return _switch(machine, "server.ui.v2_enabled", "the UI's pages call an analytics host from the browser")


def promotions(machine: Machine) -> Finding:
    """Look whether the pages advertise, with links that lead outside."""
    found = _switch(machine, "server.ui.show_promotional_content", "the UI's pages advertise")
    return warning(found.found, found.mend) if found.mend else found


def resource_metrics(machine: Machine) -> Finding:
    """Look whether memory and processor time of runs, which grow with the table, are sent to a collector."""
    accessor = "telemetry.enable_resource_metrics"
    collector = next((name for name in COLLECTORS if machine.environ.get(name)), None)
    if machine.value(accessor) and (collector or machine.settings.connected_to_cloud):
        place = f"the collector of {collector}" if collector else "Prefect Cloud"
        return leak(
            f"memory and time of runs, which grow with the table, are sent to {place}",
            mend(machine, accessor, to="false"),
        )
    return ok("no measurements of runs are sent")


def served_metrics(machine: Machine) -> Finding:
    """Look whether every run opens a port on which it tells its memory and its requests to whoever asks."""
    if machine.settings.client.metrics.enabled:
        return leak(
            f"runs tell their memory to whoever asks at a port ({origin(machine, 'client.metrics.enabled')})",
            mend(machine, "client.metrics.enabled", to="false"),
        )
    return ok("runs open no port")


def logfire(machine: Machine) -> Finding:
    """Look whether the server sends its requests and statements to an outside service."""
    if machine.environ.get("PREFECT_LOGFIRE_ENABLED", "").lower() in NO | {"on", "t", "y"}:
        return leak("the server sends its requests and statements to Logfire", "unset PREFECT_LOGFIRE_ENABLED")
    return ok("the server sends nothing to Logfire")


def _switch(machine: Machine, accessor: str, does: str) -> Finding:
    """Judge something that a server does unless it is told not to: the configured one by what it says, or one started here."""
    served = machine.server.setting(accessor) if machine.server else None
    name = f"PREFECT_{accessor.replace('.', '_').upper()}"
    if served:
        return leak(
            f"{does}, says the one at {machine.server.url if machine.server else ''}",
            f"export {name}=false  # where the server is started, then start it again",
        )
    if served is False or not machine.value(accessor):
        return ok(f"no: {does}")
    if machine.is_set(accessor):
        return leak(f"{does} ({origin(machine, accessor)})", mend(machine, accessor, to="false"))
    return warning(f"{does} {BY_HAND}", mend(machine, accessor, to="false"))
