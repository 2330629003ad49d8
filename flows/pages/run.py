"""The pages of a finished run in Markdown: its release, its rounds, and the budget before and after. All of it is public."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dpcore import Account, Balance
from dpcore.privacy.accounting import AMOUNT_OF_ONE
from dpcore.release.statement import Statement
from dpcore.reporting.formatting import booked, column_type, figure, left, stated
from dpcore.reporting.markdown import code, facts, image, mono, page, plain, table
from dpcore.reporting.outcome import Report, Round
from dpcore.reporting.plots import Bar, budget_plot, budget_words, percent, rounds_plot, rounds_words

MOST_ROUNDS = 100
"""Maximum number of rounds in the list. Of more rounds, the first and last ones are shown."""


def release_page(report: Report, *, note: str) -> str:
    """Return the page that says where the release is, how to read it, what it promises, and how to check it."""
    outcome, privacy = report.outcome, report.privacy
    columns = [(plain(name), plain(column_type(kind))) for name, kind in report.columns.items()]
    return page(
        f"# {plain(outcome.account)}: {outcome.rows:,} synthetic rows",
        f"**{plain(privacy['guarantee'])}**",
        *(f"**Warning:** {plain(warning)}." for warning in outcome.warnings),
        f"Note: {plain(note)}" if note.strip() else "",
        "The release is in this folder. Its `card.html` is for recipients: pictures of the data, what to rely on, and the promise.",
        code(outcome.release),
        "## How to read it",
        code(_reading(outcome.release)),
        "## What it promises",
        facts(_terms(privacy)),
        _several_blocks(privacy),
        "## Columns",
        facts(columns),
        "## Files",
        "\n".join(map(_file_line, report.files)),
        "The flow `verify` checks this release with everything else in the ledger. The steward can also check it with:",
        code(f"dpflow ledger verify \\\n  --head {privacy['ledger_head']}"),
    )


def rounds_page(report: Report) -> str:
    """Return the page that says what each round measured, with how much noise, and how much it improved the model.

    The rounds are a list, because lines of a list wrap: the UI cuts off a table that is wider than the page.
    """
    rounds, name = report.rounds, plain(report.outcome.account)
    if not rounds:
        return page(f"# {name}: no rounds", rounds_words(rounds))
    return page(
        f"# {name}: {len(rounds):,} {'round' if len(rounds) == 1 else 'rounds'}",
        "The synthetic rows are drawn from a model of the private table. Each round improves the model: dpflow selects the columns whose "
        "counts the model gets most wrong, counts them in the private table, adds noise to protect people, and corrects the model.",
        image(rounds_plot(rounds), rounds_words(rounds)),
        "**How to read it.** The distance compares the counts of the model with the noisy counts, added up over all cells, in percent of "
        "the rows. A smaller distance is better. ○ is the distance before the correction, ● after it. The dotted line is the distance "
        "that noise alone would cause: when ● is near this line, the round has taught the model what it could.",
        f"{rounds_words(rounds)} {_noise_words(rounds)}",
        "## Each round",
        "The columns that were counted; the distance before → after the correction; the distance from noise alone; and the share of this "
        "run's reservation that was spent by then.",
        "\n".join(_round_lines(rounds)),
        f"The {len(rounds) - MOST_ROUNDS:,} rounds in between are in `manifest.json`."
        if len(rounds) > MOST_ROUNDS
        else "",
    )


def budget_page(report: Report) -> str:
    """Return the page that says what the account had before the run, what the run spent, and what is left."""
    account, outcome = report.account, report.outcome
    this_run = account.weight * round(outcome.spent * AMOUNT_OF_ONE)
    bars = [
        Bar("before", report.before.spent, 0, report.before.reserved, report.before.cap),
        Bar("after", report.after.spent - this_run, this_run, report.after.reserved, report.after.cap),
    ]
    symbol = account.currency.symbol
    spent = (
        f"The release promises {stated(outcome.epsilon, outcome.delta)}. The run has spent {symbol} {figure(outcome.spent)} of "
        f"{figure(outcome.reserved)} reserved, {percent(this_run / report.after.cap)} of the budget (bookkeeping)."
    )
    return page(
        f"# {plain(account.name)}: the budget",
        spent,
        f"The figures are those of the most used of the {len(outcome.blocks):,} blocks that the run read."
        if outcome.blocks
        else "",
        image(budget_plot(bars), budget_words(bars)),
        f"The bookkeeping, in {symbol} and as a share of the budget:",
        facts((("before", _balance_line(report.before)), ("after", _balance_line(report.after)))),
    )


def balance_table(account: Account, balance: Balance) -> str:
    """Return a table of an account's balance, in the account's currency."""
    heads = [account.currency.symbol, "share"]
    return table(["bookkeeping", *heads], _balance_rows(balance), right=heads)


def _balance_rows(balance: Balance) -> Iterator[tuple[str, str, str]]:
    for name, rounded in (("spent", booked), ("reserved", booked), ("remaining", left)):
        amount = getattr(balance, name)
        yield "left" if name == "remaining" else name, rounded(amount), percent(amount / balance.cap)


def _balance_line(balance: Balance) -> str:
    return ", ".join(f"{name} {amount} ({share})" for name, amount, share in _balance_rows(balance))


def _file_line(file: Mapping[str, Any]) -> str:
    rows = "" if file["rows"] is None else f"{file['rows']:,} rows, "
    return f"- **{plain(file['path'])}**: {rows}{file['bytes']:,} bytes, sha256 {mono(file['sha256'][:16])}…"


def _terms(privacy: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from ((name, plain(text)) for name, text in Statement.read(privacy).terms())
    for name in ("ledger", "ledger_head", "spec_sha256"):
        yield name.replace("_", " "), f"{mono(privacy[name][:16])}…"


def _several_blocks(privacy: Mapping[str, Any]) -> str:
    """Return what the release costs a person who is in several of its blocks."""
    blocks = Statement.read(privacy).blocks
    return "" if blocks is None else plain(blocks.consequences(unit=privacy["unit"], rows=privacy["max_rows_per_unit"]))


def _reading(release: str) -> str:
    """Return lines of Python that read the release, with its path quoted."""
    return "\n".join(
        (
            f"release = {release!r}",
            "import duckdb; rows = duckdb.read_parquet(f'{release}/data/*.parquet')",
            "import pandas; rows = pandas.read_parquet(f'{release}/data')",
        )
    )


def _noise_words(rounds: Sequence[Round]) -> str:
    noises = [done.noise for done in rounds]
    size = " to ".join(dict.fromkeys((f"{min(noises):,.1f}", f"{max(noises):,.1f}")))
    return f"The noise added to each count has a standard deviation of {size}."


def _round_lines(rounds: Sequence[Round]) -> Iterator[str]:
    half = MOST_ROUNDS // 2
    shown = rounds if len(rounds) <= MOST_ROUNDS else [*rounds[:half], *rounds[-half:]]
    for done in shown:
        columns = " × ".join(map(plain, done.columns))  # noqa: RUF001  a multiplication sign
        yield (
            f"- {done.number}: **{columns}**, {percent(done.before)} → {percent(done.after)}, noise alone {percent(done.noise_floor)}, "
            f"spent {percent(done.spent)}"
        )
