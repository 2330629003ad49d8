"""Every error of the service in one JSON shape: a code, a reason that says what to do next, and a position in the query if there is one."""

from typing import Any

from pydantic import BaseModel, Field

from dpcore.answers.sql.errors import QueryError
from dpcore.errors import BudgetRefused, DpflowError, LedgerError, RunHeld, TableChanged, UsageError
from dpcore.privacy.accounting import AMOUNT_OF_ONE
from dpcore.private_log import record


class Problem(BaseModel):
    """Why a request was refused. Nothing was spent."""

    code: str = Field(description="a word for programs: query, budget, token, busy and so on")
    reason: str = Field(description="a sentence for people, with what to do next")
    line: int | None = Field(default=None, description="the line of the mistake in the query, from 1")
    column: int | None = Field(default=None, description="its column, from 1")
    requested: float | None = Field(default=None, description="the price, if the budget does not cover it")
    remaining: float | None = Field(default=None, description="what is left for it")


class Refused(Exception):  # noqa: N818  names what was done
    """A request that the service does not carry out."""

    def __init__(self, status: int, problem: Problem, *, headers: dict[str, str] | None = None) -> None:
        super().__init__(problem.reason)
        self.status = status
        self.problem = problem
        self.headers = headers or {}


STATUS_CODES = {
    400: "request",
    404: "path",
    405: "method",
}
"""The codes of problems that the framework finds, by status."""


UNAVAILABLE = "the answer cannot be bought now; tell the steward, whose log has the details"


def refusal_of(error: DpflowError) -> Refused:
    """Return how an error of a session is told to a client. What concerns the ledger or the source is for the steward's eyes only."""
    match error:
        case QueryError():
            return Refused(422, _problem("query", error, line=error.line, column=error.column))
        case BudgetRefused():
            told = {"requested": error.requested / AMOUNT_OF_ONE, "remaining": error.remaining / AMOUNT_OF_ONE}
            return Refused(402, _problem("budget", error, **told))
        case RunHeld():
            return Refused(503, _problem("busy", error), headers={"Retry-After": "5"})
        case UsageError() if not isinstance(error, TableChanged):
            return Refused(422, _problem("question", error))
        case LedgerError():
            record(error, where="dpflow serve-answers")
            reason = "the ledger cannot be used now; ask again later, or tell the steward, whose log has the details"
            return Refused(503, Problem(code="ledger", reason=reason), headers={"Retry-After": "5"})
        case _:
            record(error, where="dpflow serve-answers")
            return Refused(503, Problem(code="unavailable", reason=UNAVAILABLE))


def _problem(code: str, error: DpflowError, **more: Any) -> Problem:
    return Problem(code=code, reason=str(error), **more)
