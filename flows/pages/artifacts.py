"""Artifacts of runs and accounts in the Prefect UI: live progress, release, data, rounds, budget. All of it is public.

A failure here never loses a run. If the server does not answer, a running run shows no progress, and a finished one has no pages
until it is retried.
"""

import logging
import time
from collections.abc import Iterator
from uuid import UUID

from prefect import get_client
from prefect.artifacts import create_markdown_artifact, create_progress_artifact, update_progress_artifact
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId, ArtifactFilterKey
from prefect.client.schemas.sorting import ArtifactSort
from prefect.context import SettingsContext, get_settings_context
from prefect.runtime import flow_run

from dpcore import private_log as stewardlog
from dpcore.errors import DpflowError
from dpcore.reporting.outcome import Report
from dpcore.reporting.overview import AccountOverview
from dpcore.runs.synthesis import Synthesis
from flows.pages.account import account_page
from flows.pages.announcements import announce
from flows.pages.data import data_page
from flows.pages.form import refresh_forms
from flows.pages.keys import key
from flows.pages.run import budget_page, release_page, rounds_page

BAR_LENGTH = 20

progress = logging.getLogger("dpcore.progress")


class Watch:
    """The progress artifact of a run: a bar that moves with its rounds, and is full once the release is written."""

    def __init__(self, run: Synthesis) -> None:
        self._run = run
        self._artifact: UUID | None = None
        self._not_before = 0.0
        self._failed = False
        current = get_settings_context()
        # A run does not wait for a server that is gone. The settings are copied by hand: `temporary_settings` takes 60 ms.
        client = current.settings.client.model_copy(update={"max_retries": 0})
        self._hurried = {"profile": current.profile, "settings": current.settings.model_copy(update={"client": client})}

    def update(self) -> None:
        """Show how far the run is: about once a second, and always when its rounds are over. Writing the release is the last step."""
        rounds = self._run.strategy.rounds
        finished = self._run.rounds.done
        done = finished[-1].number if finished else 0
        over = self._run.strategy.finished or done >= rounds
        if over or time.monotonic() >= self._not_before:
            self._try_to_show((rounds if over else done) / (rounds + 1), self._words(done, over=over))

    def finish(self) -> None:
        """Show that the release is written."""
        self._try_to_show(1.0, "The release is written.")

    def _try_to_show(self, share: float, words: str) -> None:
        wait = 1.0
        try:
            with SettingsContext(**self._hurried):
                self._show(100 * share, f"{bar(share)} {words}")
        except Exception as error:  # noqa: BLE001  no failure here may lose a run
            wait = 30.0
            if not self._failed:
                stewardlog.record(error, where="the progress of a run")
            self._failed = True
        self._not_before = time.monotonic() + wait

    def _words(self, done: int, *, over: bool) -> str:
        rounds = self._run.strategy.rounds
        if over:
            state = f"{done} of {rounds} rounds made" if done else "The model is made, without rounds"
            return f"{state}; the release is written in about {self._run.rounds.seconds_left} s."
        if not done:
            return f"The first model is made; {rounds} rounds follow."
        spent = f"{100 * self._run.rounds.done[-1].spent:.0f} % of its budget spent"
        return f"Round {done} of {rounds}: {spent}; about {self._run.rounds.seconds_left} s more."

    def _show(self, percent: float, words: str) -> None:
        name = key("progress", self._run.account.name)
        self._artifact = self._artifact or _earlier(name)
        if self._artifact is None:
            created = create_progress_artifact(percent, key=name, description=words)
            self._artifact = created if isinstance(created, UUID) else None
        else:
            update_progress_artifact(self._artifact, percent, description=words)


def bar(share: float) -> str:
    """Draw a progress bar in text, because the UI shows the progress as a number only.

    >>> bar(0.4)
    '████████░░░░░░░░░░░░'
    """
    full = int(BAR_LENGTH * share)
    return "█" * full + "░" * (BAR_LENGTH - full)


def publish_report(report: Report, *, note: str) -> None:
    """Write the release, data, rounds and budget pages of a finished run, and report how much of the account is used.

    Raises:
        DpflowError: The server failed. The release is published all the same, and the message says so.
    """
    account = report.account
    failure = None
    try:
        for kind, text, about in _pages(report, note=note):
            create_markdown_artifact(text, key=key(kind, account.name), description=about)
        announce(account, report.overall, ledger=report.privacy["ledger"])
        refresh_forms(account, report.overall)
    except Exception as error:  # noqa: BLE001  the message must say that the release is published, whatever fails
        stewardlog.record(error, where="the pages of a run")
        failure = type(error).__name__
    if failure:
        raise DpflowError(
            f"the release is finished and paid for, at {report.outcome.release}, but its pages could not be written to the Prefect "
            f"server ({failure}); check that the server is running, then retry the run: nothing is charged or drawn again"
        )


def _pages(report: Report, *, note: str) -> Iterator[tuple[str, str, str]]:
    """Yield the kind, the text and the description of each page of a finished run."""
    yield "release", release_page(report, note=note), "The release: where it is, what it promises, how to read it"
    if report.portrait is not None:
        yield "data", data_page(report, report.portrait), "The data: its columns and their pairs, and what to rely on"
    yield "rounds", rounds_page(report), "The rounds: what was measured, with how much noise, and what it improved"
    yield "budget", budget_page(report), "The budget before and after the run"


def publish_account(summary: AccountOverview) -> bool:
    """Write the page of an account unless the latest one is identical, and refresh its forms. Return whether the page was written."""
    refresh_forms(summary.account, summary.most_used[1])
    name, text = key("account", summary.account.name), account_page(summary)
    with get_client(sync_client=True) as client:
        latest = client.read_artifacts(
            artifact_filter=ArtifactFilter(key=ArtifactFilterKey(any_=[name])), sort=ArtifactSort.UPDATED_DESC, limit=1
        )
    if latest and latest[0].data == text:
        return False
    create_markdown_artifact(text, key=name, description="The account: its budget, terms and runs")
    return True


def _earlier(name: str) -> UUID | None:
    """Find the progress artifact of an earlier attempt of the same flow run, to continue it."""
    if flow_run.id is None:
        return None
    of_run = ArtifactFilter(key=ArtifactFilterKey(any_=[name]), flow_run_id=ArtifactFilterFlowRunId(any_=[flow_run.id]))
    with get_client(sync_client=True) as client:
        artifacts = client.read_artifacts(artifact_filter=of_run, limit=1)
    return artifacts[0].id if artifacts else None
