"""The flow `answer`: ask a session the questions of a dashboard, and publish the answers. Each step is a Prefect task.

Questions are parameters, and prices and answers are results: Prefect stores and shows all of them. They are public, since answers are
noisy and the session has paid for them. The table and the ledger stay with the open dashboard in this process.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect.artifacts import create_table_artifact
from prefect.runtime import flow_run

from dpcore.object_store import any_path
from dpcore.places import places_of_spec, using
from dpcore.session.dashboard import (
    WIDER,
    Priced,
    answers_folder,
    open_dashboard,
    opened,
    publish_answers,
    total_paid,
)
from dpcore.session.questions import Questions
from dpcore.steward.registry import declared
from flows.form import DashboardName, Level, Queries, ReleaseName, SessionId, WithinText
from flows.pages.answers import answer_rows, answer_words
from flows.pages.keys import key
from flows.tasks.guard import private_flow, private_task
from flows.tasks.untrusted import checked_trust


class Asked:
    """A question was asked: its answer was bought, or has become free. The next task takes this token, so that Prefect draws their order."""


@dataclass(frozen=True)
class Published:
    """The answers are in this folder."""

    folder: str


@private_task(name="price")
def price(run_id: str, _after: Priced | Asked | None) -> Priced:
    """Price all queries, from public values alone. A mistake in one of them ends the run before anything is charged."""
    return opened(run_id).price()


@private_task(name="buy", task_run_name="query-{number:03}/buy")
def buy(run_id: str, number: int, _after: Priced | Asked) -> Asked:
    """Buy the answer to one query."""
    opened(run_id).buy(number)
    return Asked()


@private_task(name="publish")
def publish(run_id: str, folder: str, _after: Priced) -> Published:
    """Write the answers as Parquet files to a folder."""
    publish_answers(opened(run_id), any_path(folder))
    return Published(folder)


@private_task(name="report")
def report(run_id: str, name: str, after: Published | Priced) -> dict[str, Any]:
    """Write the table of answers, prices and what is left. If nothing was published, it shows prices only."""
    folder = after.folder if isinstance(after, Published) else ""
    dashboard = opened(run_id)
    answers = dashboard.answers()
    words = answer_words(answers, balance=dashboard.balance, where="/".join(Path(folder).parts[-3:]))
    create_table_artifact(answer_rows(answers), key=key("answers", name), description=words)
    return {
        "session": dashboard.session.id,
        "answers": folder,
        "paid": total_paid(answers),
        "remaining": dashboard.remaining,
        "currency": dashboard.session.account.currency.symbol,
        "wider": [answered.number for answered in answers if answered.status == WIDER],
    }


def _run_name() -> str:
    return f"answers {flow_run.parameters.get('name') or 'answers'}"


@private_flow(name="answer", flow_run_name=_run_name)
def answer(  # noqa: PLR0913, PLR0917  each is a field of the form, except the last
    release: ReleaseName,
    queries: Queries,
    within: WithinText,
    level: Level = 0.95,
    session: SessionId = "",
    name: DashboardName = "answers",
    accept_wider: bool = False,  # noqa: FBT001, FBT002  a field of the form
    dry_run: bool = False,  # noqa: FBT001, FBT002  a field of the form
    *,
    untrusted: bool = False,
) -> dict[str, Any]:
    """Answer questions from a session, as accurately as wanted, and publish the answers. What the session knows or has bought is free.

    Args:
        release: The registered spec whose session answers. Open the session first: dpflow session open SPEC.
        queries: The questions, each one SQL statement about the table `release`, at most 200. They are stored and shown, so write nothing private.
        within: The wanted half width of every interval: rows, or units of a mean's column, such as 50; 2% of each number; or 2 points of a share.
        level: The level of the intervals, such as 0.95.
        session: The id of the session. Empty: the newest open one of the spec.
        name: The name under which the answers are published. The next run with this name replaces them.
        accept_wider: Whether an answer that can't be bought is given with a wider interval. Otherwise the run is refused.
        dry_run: Whether only to show what is known and what the wanted accuracy would cost. Nothing is bought, and no file is written.
        untrusted: Whether a server submitted the run. Then `release` must be registered.
    """
    untrusted = checked_trust(untrusted=untrusted)
    declaration = declared(release, registered_only=untrusted)
    questions = Questions(tuple(queries), within, level, accept_wider=accept_wider or dry_run)
    with (
        using(places_of_spec(declaration.path)),
        open_dashboard(str(flow_run.id), declaration.path, questions, session=session or None) as run_id,
    ):
        priced = price(run_id, None)
        if dry_run:
            return report(run_id, name, priced)
        while priced.to_buy:
            asked: Priced | Asked = priced
            for number in priced.to_buy:
                asked = buy(run_id, number, asked)
            priced = price(run_id, asked)  # the model has learned, so other intervals may have changed
        published = publish(run_id, str(answers_folder(declaration, name)), priced)
        return report(run_id, name, published)
