"""The service's HTTP interface: GET /, GET /columns, POST /price, POST /ask, GET /budget and GET /answers."""

from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.routing import Route

from dpcore.privacy.accounting import AMOUNT_OF_ONE
from dpcore.release.integrity import one_line
from dpcore.reporting.plots import colours
from dpcore.service.desk import Desk
from dpcore.service.door import Door
from dpcore.service.problems import STATUS_CODES, Problem, Refused, refusal_of
from dpcore.session.price import Price
from dpcore.session.questions import LOWEST_LEVEL, Question
from dpcore.version import installed_version

CONSOLE = Path(__file__).parent / "console"
LONGEST_QUERY = 8_000


class Asked(BaseModel):
    """A question."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    query: str = Field(
        min_length=1,
        max_length=LONGEST_QUERY,
        description="one SQL statement on the table `release`",
        examples=["select count(*) as n from release"],
    )
    within: Annotated[float, Field(gt=0, strict=True)] | Annotated[str, Field(max_length=20)] = Field(
        description='the wanted half width of each interval: rows or units of a mean, such as 50; "2%" of each number; or "2 points" of a share',
        examples=[50, "2%"],
    )
    level: float = Field(default=0.95, ge=LOWEST_LEVEL, lt=1, description="the level of the intervals")

    @property
    def question(self) -> Question:
        """The question for the desk."""
        return Question(self.query, self.within, self.level)


class AskedToPay(Asked):
    """A question, and how much may be paid for its answer."""

    at_most: float | None = Field(
        default=None,
        ge=0,
        le=1e3,
        description="refuse if the answer costs more than this, in the account's currency; default: whatever it costs",
    )

    @property
    def amount(self) -> int | None:
        """The most to pay, as an amount of the ledger."""
        return None if self.at_most is None else round(self.at_most * AMOUNT_OF_ONE)


class Columns(BaseModel):
    """The columns that can be asked about."""

    columns: list[dict[str, Any]] = Field(
        description="each as a field of a Table Schema: its name and type, and its categories or its limits; `sql` is its name in a question"
    )


class Answered(BaseModel):
    """An answer. Beside each number `x` there are `x_low` and `x_high`, the ends of its interval, and `x_basis`."""

    columns: list[str]
    rows: list[dict[str, Any]]
    price: Price


class SessionEpsilon(BaseModel):
    """The amounts of the session, each as an epsilon by itself."""

    reserved: float
    spent: float
    remaining: float


class SessionBudget(BaseModel):
    """The budget of the whole session."""

    id: str
    reserved: float
    spent: float
    remaining: float
    epsilon: SessionEpsilon


class ShareEpsilon(BaseModel):
    """The amounts of an analyst, each as an epsilon by itself."""

    cap: float
    spent: float
    remaining: float


class Budget(BaseModel):
    """What an analyst may spend, in the account's currency. The session's rest may be less than the analyst's."""

    analyst: str
    cap: float
    spent: float
    remaining: float
    currency: str
    epsilon: ShareEpsilon
    removed: bool
    session: SessionBudget


class BoughtAnswer(BaseModel):
    """An answer that was bought."""

    query: str
    cost: float
    epsilon: float
    level: float
    rows: list[dict[str, Any]]


class Answers(BaseModel):
    """All answers that an analyst has bought, oldest first. Free answers are not stored: ask again."""

    answers: list[BoughtAnswer]


class Failure(BaseModel):
    """The shape of every error."""

    error: Problem


REFUSALS: dict[int | str, dict[str, Any]] = {
    code: {"model": Failure, "description": about}
    for code, about in {
        400: "the body cannot be read",
        401: "the token is missing or unknown",
        402: "the budget does not cover the price; nothing was charged",
        403: "the host name or the origin is foreign",
        411: "the body has no Content-Length",
        413: "the body is too large",
        422: "the body is not JSON, or the question is invalid; nothing was charged",
        429: "too many requests",
        503: "busy, or the ledger cannot be reached",
    }.items()
}


def make_app(desk: Desk, door: Door) -> FastAPI:
    """Return the application. The caller opens and closes desk and door, and puts the gate in front."""
    app = FastAPI(
        title="dpflow answers",
        version=installed_version(),
        description="Ask questions about a private table in SQL. Most answers are free; the price of others is known beforehand.",
        docs_url=None,  # its pages load scripts from other hosts
        redoc_url=None,
        responses=REFUSALS,
    )
    bearer = HTTPBearer(auto_error=False, description="the token that `dpflow analyst add` has printed")

    async def admitted(request: Request, _: Annotated[Any, Depends(bearer)]) -> str:
        return door.admit(request.headers.get("authorization"))

    Analyst = Annotated[str, Depends(admitted)]  # noqa: N806  a type

    @app.get("/columns", response_model=Columns, summary="What can be asked about?")
    async def columns(_analyst: Analyst) -> Response:
        return JSONResponse({"columns": desk.columns})

    @app.post("/price", response_model=Price, summary="What would an answer cost?")
    async def price(asked: Asked, analyst: Analyst) -> Response:
        return JSONResponse(await desk.price(asked.question, analyst))

    @app.post("/ask", response_model=Answered, summary="Answer a question")
    async def ask(asked: AskedToPay, analyst: Analyst) -> Response:
        return JSONResponse(await desk.ask(asked.question, analyst, at_most=asked.amount))

    @app.get("/budget", response_model=Budget, summary="What is left?")
    async def budget(analyst: Analyst) -> Response:
        return JSONResponse(await desk.budget(analyst))

    @app.get("/answers", response_model=Answers, summary="What have I bought?")
    async def answers(analyst: Analyst) -> Response:
        return JSONResponse({"answers": await desk.bought(analyst)})

    _add_console(app)
    _add_failures(app)
    return app


def _add_console(app: FastAPI) -> None:
    """Serve the console: one page, its style and its script. They need no token, and hold nothing that is not public."""
    style = f"{colours.variables(':root')}\n{(CONSOLE / 'console.css').read_text('utf-8')}"
    files = {
        "/": ((CONSOLE / "console.html").read_text("utf-8"), "text/html"),
        "/console.css": (style, "text/css"),
        "/console.js": ((CONSOLE / "console.js").read_text("utf-8"), "text/javascript"),
    }
    for path, (text, kind) in files.items():
        page = Response(text, media_type=kind)
        app.router.routes.append(Route(path, page, methods=["GET"], include_in_schema=False))


def _add_failures(app: FastAPI) -> None:
    """Give every error the same shape."""

    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> Response:
        problem = error.problem.model_dump(exclude_none=True)
        return JSONResponse({"error": problem}, status_code=error.status, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = one_line(".".join(str(part) for part in first["loc"] if isinstance(part, str)))
        return await refused(request, Refused(422, "request", f"{where}: {first['msg']}"))

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        words = f"{HTTPStatus(error.status_code).phrase.lower()}; see /openapi.json"
        code = STATUS_CODES.get(error.status_code, "request")
        return await refused(request, Refused(error.status_code, code, words, headers=error.headers))

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return await refused(request, refusal_of(error))
