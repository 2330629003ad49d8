"""Every error of the service in one JSON shape: a code, a reason that says what to do next, and a position in the query if there is one."""

from collections.abc import Mapping

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

    def __init__(
        self, status: int, code: str, reason: str, *, headers: Mapping[str, str] | None = None, **details: float
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.problem = Problem.model_validate({"code": code, "reason": reason, **details})
        self.headers = headers


STATUS_CODES = {400: "request", 404: "path", 405: "method"}
"""The codes of problems that the framework finds, by status."""

LATER = {"Retry-After": "5"}


def refusal_of(error: Exception) -> Refused:
    """Return how an error is told to a client. What concerns the ledger, the source or the service is for the steward's eyes only."""
    reason = str(error)
    match error:
        case QueryError():
            return Refused(422, "query", reason, line=error.line, column=error.column)
        case BudgetRefused():
            requested, remaining = error.requested / AMOUNT_OF_ONE, error.remaining / AMOUNT_OF_ONE
            return Refused(402, "budget", reason, requested=requested, remaining=remaining)
        case RunHeld():
            return Refused(503, "busy", reason, headers=LATER)
        case UsageError() if not isinstance(error, TableChanged):
            return Refused(422, "question", reason)
    record(error, where="dpflow serve-answers")
    return _failure_of(error)


def _failure_of(error: Exception) -> Refused:
    match error:
        case LedgerError():
            reason = "the ledger cannot be used now; ask again later, or tell the steward, whose log has the details"
            return Refused(503, "ledger", reason, headers=LATER)
        case DpflowError():
            reason = "the answer cannot be bought now; tell the steward, whose log has the details"
            return Refused(503, "unavailable", reason)
    return Refused(500, "failed", "the service failed; the details are in the steward's log")
