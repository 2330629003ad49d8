"""The registry of dashboards: questions that are asked of a session again and again, by name, on a schedule.

A dashboard is declared in a file. Registering it checks every question against the registered spec, without reading data, and stores the
questions themselves, so that a later change of the file changes nothing until it is registered again.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from dpcore.errors import DpflowError, SpecError, UsageError
from dpcore.places import fixed_registry_folder, registry_folder
from dpcore.session.questions import MOST_QUERIES, Questions
from dpcore.spec import Declaration
from dpcore.spec.document import read_document
from dpcore.steward.entries import Entries, Scheduled
from dpcore.steward.registry import declared, registered
from dpcore.steward.schedule import checked_schedule


class DashboardSpec(BaseModel):
    """A dashboard's file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    release: str = Field(description="The registered name of the spec whose session answers.")
    within: str = Field(description="The wanted half width of every interval: rows, such as 50, or a share such as 2%.")
    queries: list[str] = Field(min_length=1, max_length=MOST_QUERIES, description="The questions, in SQL.")
    level: float = Field(default=0.95, gt=0, lt=1, description="The level of the intervals.")
    session: str = Field(default="", description="The session's id. Empty: the newest open one.")
    accept_wider: bool = Field(default=False, description="Whether to give answers that can't be bought as they are.")

    @field_validator("within", mode="before")
    @classmethod
    def _as_text(cls, within: Any) -> Any:
        """Return the accuracy as text: in YAML, 50 is a number."""
        return str(within) if isinstance(within, int | float) and not isinstance(within, bool) else within


@dataclass(frozen=True, kw_only=True)
class RegisteredDashboard(Scheduled):
    """A dashboard that is run by its name, under which its answers are published.

    Attributes:
        release: The registered name of the spec whose session answers.
        questions: What it asks.
        session: The session's id; empty for the newest open one.
    """

    what = "dashboard"

    release: str
    questions: Questions
    session: str

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the flow `answer` for this dashboard."""
        questions = {**vars(self.questions), "queries": list(self.questions.queries)}
        return {"release": self.release, **questions, "session": self.session, "name": self.name}


def register_dashboard(
    file: str | Path, *, name: str | None = None, cron: str | None = None, timezone: str | None = None
) -> RegisteredDashboard:
    """Check a dashboard's file, without reading data, and register it to be run by name. Registering it again updates the entry.

    Raises:
        SpecError: If the file has mistakes, each with its position.
        UsageError: If the spec is not registered, or a query cannot be understood.
    """
    path = Path(file)
    spec = load_dashboard(path)
    questions = Questions(tuple(spec.queries), spec.within, spec.level, accept_wider=spec.accept_wider)
    declaration = declared(spec.release, registered_only=True)
    _check_queries(questions, declaration)
    cron, timezone = checked_schedule(cron, timezone)
    fixed_registry_folder()
    entry = RegisteredDashboard(
        name=path.stem if name is None else name,
        release=spec.release,
        account=registered(spec.release).account,
        questions=questions,
        session=spec.session,
        cron=cron,
        timezone=timezone,
        registered_at=datetime.now(UTC).replace(microsecond=0),
    )
    _entries().write(entry.name, entry)
    return entry


def load_dashboard(path: Path) -> DashboardSpec:
    """Read a dashboard's file. Raise one error that lists all its mistakes, with their positions."""
    document = read_document(path)
    try:
        return DashboardSpec.model_validate(document.data)
    except ValidationError as error:
        for mistake in error.errors(include_url=False, include_input=False):
            where = ".".join(map(str, mistake["loc"])) or "the file"
            document.mistake(mistake["loc"], f"{where}: {mistake['msg'][0].lower()}{mistake['msg'][1:]}; {_FORM}")
        document.raise_mistakes()
        raise SpecError(f"{path} is not a dashboard; {_FORM}") from None


_FORM = 'write `release: NAME`, `within: 50` or `within: "2%"`, and `queries:` with a list of SQL statements'


def _check_queries(questions: Questions, declaration: Declaration) -> None:
    """Raise if a query cannot be understood. Values that are yet to be discovered are unknown here, so such a spec is checked by the run."""
    from dpcore.answers.sql import parse  # noqa: PLC0415  other verbs start faster without the parser

    if declaration.descents():
        return
    for number, query in enumerate(questions.queries, start=1):
        try:
            parse(query, declaration.universe, tables=("release", declaration.spec.dataset))
        except DpflowError as error:
            raise UsageError(f"query {number}: {error}") from None


def unregister_dashboard(name: str) -> None:
    """Remove a dashboard from the registry. Its answers stay."""
    fixed_registry_folder()
    if not _entries().remove(name):
        names = ", ".join(_entries().names()) or "none"
        raise UsageError(f"no dashboard is registered as {name[:100]!r}; registered dashboards: {names}")


def all_dashboards() -> tuple[RegisteredDashboard, ...]:
    """Return all registered dashboards, sorted by name."""
    entries = _entries()
    return tuple(entry for name in entries.names() if (entry := entries.read(name)) is not None)


def _entries() -> Entries[RegisteredDashboard]:
    mend = "remove it with `dpflow dashboard {name} --remove`, then register the dashboard again"
    return Entries(registry_folder(), ".dashboard", RegisteredDashboard, mend)
