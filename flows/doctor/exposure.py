"""Checks of who can reach the Prefect server, and what it lets them do."""

from importlib.metadata import version

from flows.doctor.finding import Finding, leak, ok, warning
from flows.doctor.machine import Machine
from flows.doctor.origin import mend, origin
from flows.doctor.server import Reach, Server, reach

# Server and clients read the same password from different variables.
ASK_WHO = (
    "export PREFECT_SERVER_API_AUTH_STRING=steward:$(openssl rand -hex 16);"
    " export PREFECT_API_AUTH_STRING=$PREFECT_SERVER_API_AUTH_STRING"
)


def server_started_here(machine: Machine) -> Finding:
    """Check whether a server started with these settings would accept other machines without a password."""
    api = machine.settings.server.api
    if reach(api.host) is Reach.LOOPBACK:
        return ok("a server started here accepts this machine only")
    if api.auth_string and api.auth_string.get_secret_value():
        return ok("a server started here asks others for a password")
    return leak(
        f"a server started here accepts other machines and asks for no password ({origin(machine, 'server.api.host')})",
        ASK_WHO,
    )


def server_configured(machine: Machine) -> Finding:
    """Check whether the configured server asks for no password. Loopback keeps out neither other accounts nor web pages."""
    server = machine.server
    if server is None:
        return ok("no server is configured; runs use a temporary one that accepts this machine only")
    if not server.answers:
        return warning(f"the server at {server.url} does not answer", f"curl -i {server.url}/health")
    if server.is_open:
        local = "every account and every web page on this machine"
        whom = local if server.reach is Reach.LOOPBACK else "anybody"
        return leak(
            f"the server at {server.url} asks for no password and answers {whom}",
            f"{ASK_WHO}  # where it is started, then start it again; or use `dpflow ui`",
        )
    return ok(f"the server at {server.url} asks for a password")


def way_to_server(machine: Machine) -> Finding:
    """Check whether passwords and run logs are sent unencrypted, or to a server that proves no identity."""
    server = machine.server
    if server is None or server.reach is Reach.LOOPBACK:
        return ok("nothing is sent to another machine")
    secure = f"export PREFECT_API_URL={_encrypted(server)}"
    if not server.is_encrypted and server.reach is Reach.NEAR:
        return warning(f"traffic to {server.url} is unencrypted and can be read on its private network", secure)
    if not server.is_encrypted:
        return leak(f"traffic to {server.url} is unencrypted and can be read on the way", secure)
    if machine.settings.api.tls_insecure_skip_verify:
        where = origin(machine, "api.tls_insecure_skip_verify")
        return leak(
            f"the password is sent to any server that claims to be {server.url} ({where})",
            mend(machine, "api.tls_insecure_skip_verify", to="false"),
        )
    return ok("traffic to the server is encrypted")


def forged_requests(machine: Machine) -> Finding:
    """Check whether a web page open in a user's browser could start runs in that user's name."""
    accessor = "server.api.csrf_protection_enabled"
    shared = reach(machine.settings.server.api.host) is not Reach.LOOPBACK
    if machine.server is None and not shared:
        return ok("no server is used from a browser")
    told = machine.server.setting(accessor) if machine.server else machine.value(accessor)
    if told:
        return ok("web pages can't start runs in a user's name")
    bad = leak if machine.server and machine.server.is_open else warning
    return bad(
        "a web page in a user's browser could start runs on the server"
        + (", unless CSRF protection is on" if told is None else ": CSRF protection is off"),
        "export PREFECT_SERVER_API_CSRF_PROTECTION_ENABLED=true  # where the server is started, then start it again",
    )


def server_version(machine: Machine) -> Finding:
    """Check whether the configured server has the Prefect version for which these checks were written."""
    server, known = machine.server, version("prefect")
    if server is None or not server.answers:
        return ok(f"runs use Prefect {known}")
    if server.version == known:
        return ok(f"the server is Prefect {known}, as here")
    if server.version is None:
        return warning(
            f"the server at {server.url} tells its version only with a password and over an encrypted connection",
            f"export PREFECT_API_AUTH_STRING=USER:PASSWORD PREFECT_API_URL={_encrypted(server)}",
        )
    return warning(
        f"the server at {server.url} is Prefect {server.version}; dpflow knows what {known} stores",
        f"pip install prefect=={known}  # where the server is started, then start it again",
    )


def server_database(machine: Machine) -> Finding:
    """Check whether a server for other machines would use SQLite, which loses requests under load."""
    database = machine.settings.server.database
    url = database.connection_url.get_secret_value() if database.connection_url else ""
    if url.startswith("sqlite") and reach(machine.settings.server.api.host) is not Reach.LOOPBACK:
        return warning(
            "a server for other machines would use SQLite, which fails under load",
            "export PREFECT_SERVER_DATABASE_CONNECTION_URL=postgresql+asyncpg://USER@HOST/DATABASE",
        )
    return ok("the server's database suits its users")


def _encrypted(server: Server) -> str:
    return server.url.replace("http:", "https:", 1)
