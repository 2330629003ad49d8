"""Checks of who can reach the Prefect server, and what it lets them do."""

from importlib.metadata import version

from flows.doctor.finding import Finding, leak, warning
from flows.doctor.machine import Machine
from flows.doctor.server import Reach, Server, reach
from flows.doctor.settings import Unsafe, origin

# Server and clients read the same password from different variables.
ASK_WHO = (
    "export PREFECT_SERVER_API_AUTH_STRING=steward:$(openssl rand -hex 16);"
    " export PREFECT_API_AUTH_STRING=$PREFECT_SERVER_API_AUTH_STRING"
)


def server_started_here(machine: Machine) -> Finding | None:
    """Return a leak if a server started with these settings would accept other machines without a password."""
    api = machine.settings.server.api
    if reach(api.host) is Reach.LOOPBACK or (api.auth_string and api.auth_string.get_secret_value()):
        return None
    where = origin(machine, "server.api.host")
    return leak(f"a server started here accepts other machines and asks for no password ({where})", ASK_WHO)


def server_configured(machine: Machine) -> Finding | None:
    """Return a leak if the configured server asks for no password. Loopback keeps out neither other accounts nor web pages."""
    server = machine.server
    if server and not server.answers:
        return warning(f"the server at {server.url} does not answer", f"curl -i {server.url}/health")
    if not (server and server.is_open):
        return None
    whom = "every account and every web page on this machine" if server.reach is Reach.LOOPBACK else "anybody"
    return leak(
        f"the server at {server.url} asks for no password and answers {whom}",
        f"{ASK_WHO}  # where it is started, then start it again; or use `dpflow ui`",
    )


def way_to_server(machine: Machine) -> Finding | None:
    """Return a finding if passwords and run logs are sent unencrypted, or to a server that proves no identity."""
    server = machine.server
    if server is None or server.reach is Reach.LOOPBACK:
        return None
    if server.is_encrypted:
        sentence = f"the password is sent to any server that claims to be {server.url}"
        return Unsafe("api.tls_insecure_skip_verify", sentence)(machine)
    sentence, secure = (
        f"traffic to {server.url} is unencrypted and can be read",
        f"export PREFECT_API_URL={_encrypted(server)}",
    )
    if server.reach is Reach.NEAR:
        return warning(f"{sentence} on its private network", secure)
    return leak(f"{sentence} on the way", secure)


def forged_requests(machine: Machine) -> Finding | None:
    """Return a finding if a web page open in a user's browser could start runs in that user's name."""
    setting, server = "server.api.csrf_protection_enabled", machine.server
    protected = server.setting(setting) if server else machine.value(setting)
    if protected or (server is None and reach(machine.settings.server.api.host) is Reach.LOOPBACK):
        return None
    return (leak if server and server.is_open else warning)(
        "a web page in a user's browser could start runs on the server"
        + (", unless CSRF protection is on" if protected is None else ": CSRF protection is off"),
        "export PREFECT_SERVER_API_CSRF_PROTECTION_ENABLED=true  # where the server is started, then start it again",
    )


def server_version(machine: Machine) -> Finding | None:
    """Return a warning unless the configured server has the Prefect version for which these checks were written."""
    server, ours = machine.server, version("prefect")
    if server is None or not server.answers or server.version == ours:
        return None
    if server.version is None:
        return warning(
            f"the server at {server.url} tells its version only with a password and over an encrypted connection",
            f"export PREFECT_API_AUTH_STRING=USER:PASSWORD PREFECT_API_URL={_encrypted(server)}",
        )
    return warning(
        f"the server at {server.url} is Prefect {server.version}; dpflow knows what {ours} stores",
        f"pip install prefect=={ours}  # where the server is started, then start it again",
    )


def server_database(machine: Machine) -> Finding | None:
    """Return a warning if a server for other machines would use SQLite, which loses requests under load."""
    api, url = machine.settings.server.api, machine.settings.server.database.connection_url
    if url and url.get_secret_value().startswith("sqlite") and reach(api.host) is not Reach.LOOPBACK:
        return warning(
            "a server for other machines would use SQLite, which fails under load",
            "export PREFECT_SERVER_DATABASE_CONNECTION_URL=postgresql+asyncpg://USER@HOST/DATABASE",
        )
    return None


def _encrypted(server: Server) -> str:
    return server.url.replace("http:", "https:", 1)
