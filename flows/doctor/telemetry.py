"""Checks of whether outsiders learn that, when and how Prefect is used here.

dpflow's own commands turn off what Prefect reports by default. So a report is a leak only if somebody has turned it on, or if the
configured server sends it.
"""

from flows.doctor.finding import Finding, leak, ok, warning
from flows.doctor.machine import Machine
from flows.doctor.origin import mend, origin

NO = {"1", "true", "yes"}
BY_HAND = "unless dpflow starts it"
COLLECTORS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def usage_reports(machine: Machine) -> Finding:
    """Check whether Prefect's client sends usage reports to its makers."""
    chosen = machine.environ.get("DO_NOT_TRACK")
    if (chosen or "").lower() in NO:
        return ok("the client sends no usage reports")
    if chosen:
        return leak("DO_NOT_TRACK is set so that Prefect's client reports to its makers", "export DO_NOT_TRACK=1")
    return warning(f"Prefect's client reports to its makers {BY_HAND}", "export DO_NOT_TRACK=1")


def server_analytics(machine: Machine) -> Finding:
    """Check whether the server sends analytics to Prefect's makers."""
    return _switch(machine, "server.analytics_enabled", "the server reports to Prefect's makers")


def new_pages(machine: Machine) -> Finding:
    """Check whether the newer UI is shown, whose pages call an analytics host from the browser."""
    return _switch(machine, "server.ui.v2_enabled", "the server's UI calls an analytics host from the browser")


def promotions(machine: Machine) -> Finding:
    """Check whether the pages show promotions, with links to outside hosts."""
    found = _switch(machine, "server.ui.show_promotional_content", "the server's UI shows promotions")
    return warning(found.found, found.mend) if found.mend else found


def resource_metrics(machine: Machine) -> Finding:
    """Check whether memory and CPU time of runs, which grow with the table, are sent to a collector."""
    accessor = "telemetry.enable_resource_metrics"
    collector = next((name for name in COLLECTORS if machine.environ.get(name)), None)
    if machine.value(accessor) and (collector or machine.settings.connected_to_cloud):
        place = f"the collector of {collector}" if collector else "Prefect Cloud"
        return leak(
            f"memory and CPU time of runs, which grow with the table, are sent to {place}",
            mend(machine, accessor, to="false"),
        )
    return ok("no resource metrics of runs are sent")


def served_metrics(machine: Machine) -> Finding:
    """Check whether every run opens a port on which anybody can read its memory use and requests."""
    if machine.settings.client.metrics.enabled:
        return leak(
            f"runs open a port on which anybody can read their memory use ({origin(machine, 'client.metrics.enabled')})",
            mend(machine, "client.metrics.enabled", to="false"),
        )
    return ok("runs open no metrics port")


def logfire(machine: Machine) -> Finding:
    """Check whether the server sends its requests and SQL statements to an outside service."""
    if machine.environ.get("PREFECT_LOGFIRE_ENABLED", "").lower() in NO | {"on", "t", "y"}:
        return leak("the server sends its requests and SQL statements to Logfire", "unset PREFECT_LOGFIRE_ENABLED")
    return ok("the server sends nothing to Logfire")


def _switch(machine: Machine, accessor: str, does: str) -> Finding:
    """Judge a default of Prefect's server: by the configured server's own settings, or by the settings for a server started here."""
    served = machine.server.setting(accessor) if machine.server else None
    name = f"PREFECT_{accessor.replace('.', '_').upper()}"
    if served:
        return leak(
            f"{does}, according to the server at {machine.server.url if machine.server else ''}",
            f"export {name}=false  # where the server is started, then start it again",
        )
    if served is False or not machine.value(accessor):
        return ok(f"no: {does}")
    if machine.is_set(accessor):
        return leak(f"{does} ({origin(machine, accessor)})", mend(machine, accessor, to="false"))
    return warning(f"{does} {BY_HAND}", mend(machine, accessor, to="false"))
