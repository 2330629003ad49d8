"""`dpflow plan`: what a run would measure and cost, or the epsilon that reaches a given error."""

import argparse
import math

from dpcore.cli.arguments import AS_OF, SPEC, Subparsers, add_verb, argument, day_of
from dpcore.cli.output import Answer, wrapped
from dpcore.cli.plan_ratings import change_lines, column_lines, pair_lines, summary_lines
from dpcore.cli.verbs import VERBS
from dpcore.errors import UsageError
from dpcore.privacy.accounting import Currency
from dpcore.reporting.formatting import BOOKED_PLACES, at_most, cells, down, figure, next_run
from dpcore.reporting.ratings import percent
from dpcore.runs.planning.grounds import MOST_ROWS
from dpcore.runs.planning.limits import PlannedLimit
from dpcore.runs.planning.plan import Plan, PlannedFunction, PlannedPersons, PlannedRounds, PlannedTotal, plan_run
from dpcore.runs.planning.scope import PlannedDiscovery
from dpcore.runs.planning.target import Target, epsilon_for
from dpcore.spec import Declaration, load_spec
from dpcore.spec.release import STRATEGIES, StrategySpec

_ROWS_FROM = {
    "given": "as given with --rows",
    "earlier release": "the noisy total of the newest release; if that has changed, give the number with --rows",
    "expect_rows": "the middle of `expect_rows`; if you know better, give the number with --rows",
    "output.rows": "from `output.rows`; if the table has another number of rows, give it with --rows",
    "a guess": "a guess; give the number with --rows",
}


def add_verbs(verbs: Subparsers) -> None:
    """Add the verb to the parser."""
    add_verb(
        verbs,
        "plan",
        VERBS["plan"].about,
        SPEC,
        argument(
            "--rows",
            metavar="N",
            type=int,
            help="roughly how many rows the table has; the plan is public, so give a public guess; default: as in the newest release, "
            "`output.rows`, the middle of `expect_rows`, or 100,000",
        ),
        argument(
            "--units",
            metavar="N",
            type=int,
            help="roughly how many persons, or other units, the table has: a public guess, too; how many rows count after "
            "`max_rows_per_unit` follows from it; default: the fewest that `expect_rows` allows, or one row in ten",
        ),
        argument(
            "--all", action="store_true", help="list every column and every pair of columns, not only the worst ones"
        ),
        argument("--as-of", metavar="DAY", help=AS_OF),
        argument(
            "--error",
            metavar="SHARE",
            type=float,
            help="instead, find the epsilon at which a marginal's expected error is at most this share of the rows, such as 0.02",
        ),
        argument(
            "--on",
            metavar="COLUMNS",
            action="append",
            help="the columns of that marginal, such as sex,age (may be given more than once)",
        ),
        run=_plan,
    )


def _plan(arguments: argparse.Namespace) -> Answer:
    if arguments.rows is not None and not 1 <= arguments.rows <= MOST_ROWS:
        raise UsageError(f"--rows must be a number from 1 to {MOST_ROWS:,}; about how many rows does the table have?")
    if arguments.units is not None and not 1 <= arguments.units <= MOST_ROWS:
        raise UsageError(f"--units must be a number from 1 to {MOST_ROWS:,}; about how many units does the table have?")
    if (arguments.error is None) != (arguments.on is None):
        raise UsageError("--error and --on go together: give the error and the columns of the marginal it applies to")
    declaration, as_of = load_spec(arguments.spec), day_of(arguments.as_of)
    if arguments.error is not None:
        columns = _columns(declaration, arguments.on)
        target = epsilon_for(
            declaration, error=arguments.error, columns=columns, rows=arguments.rows, units=arguments.units, as_of=as_of
        )
        return Answer(
            target.to_json(),
            _target_text(
                target,
                discovered=not declaration.descents().keys().isdisjoint(columns),
                chooses=declaration.lacks_limit,
            ),
        )
    plan = plan_run(declaration, rows=arguments.rows, units=arguments.units, as_of=as_of)
    lines = (wrapped(line, indent=11) for line in _lines(plan, everything=arguments.all))
    return Answer(
        plan.to_json(), "\n".join([f"{arguments.spec}: what a run would do", "", *lines]), exit_code=plan.exit_code
    )


def _lines(plan: Plan, *, everything: bool) -> list[str]:
    why = f" (chosen: {plan.strategy_reason})" if plan.strategy_reason else " (as the spec says)"
    return [
        *summary_lines(plan.ratings, columns_are_measured=bool(plan.first)),
        *change_lines(plan.changes),
        "",
        f"strategy   {plan.strategy}{why}",
        f"universe   {plan.universe.columns:,} columns, {_universe_cells(plan)} cells",
        *_row_lines(plan),
        *([] if plan.prior is None else [f"starts     from {plan.prior}; the start itself is not charged"]),
        *_budget_lines(plan),
        *([] if plan.limits is None else _limit_lines(plan.limits)),
        *([] if plan.expects is None else [_expected_rows(plan.expects)]),
        *([] if plan.persons is None else [_persons(plan.persons)]),
        *map(_discovery, plan.discovers),
        *map(_depends, plan.depends),
        "",
        *column_lines(plan, every=everything),
        *pair_lines(plan, every=everything),
        *([f"ranges     {', '.join(plan.ranges)}: coarser versions, at the same cost again"] if plan.ranges else ()),
        *_round_lines(plan.rounds, STRATEGIES[plan.strategy]),
        f"memory     about {_rounded(plan.costs.memory_mb)} MB",
        f"time       about {_duration(plan.costs.least_seconds)} to {_duration(plan.costs.most_seconds)}",
        *(f"warning    {warning}" for warning in plan.warnings),
    ]


def _row_lines(plan: Plan | Target) -> list[str]:
    kept = plan.kept.sentence
    return [
        f"rows       about {plan.rows:,}: {_ROWS_FROM[plan.rows_from]}",
        *([] if kept is None else [f"           {kept}"]),
    ]


def _budget_lines(plan: Plan) -> list[str]:
    account, currency = plan.account, Currency(plan.account.currency)
    paid = "" if currency is Currency.PURE else f": {currency.symbol} {figure(plan.amount)}"
    lines = [
        f"spends     epsilon {at_most(plan.epsilon)}, delta {at_most(plan.delta)}{paid}, from account {account.name}",
        _amounts(plan),
    ]
    if account.remaining is None or account.remaining_epsilon is None:
        return [*lines, f"account    not open yet, so {currency} is assumed: {account.missing}"]
    left = f"{currency.symbol} {down(account.remaining, places=BOOKED_PLACES)}"
    if account.refused is not None:
        return [*lines, f"refused    {account.refused}", f"has        {left}, without this run"]
    following = next_run(
        account.remaining_epsilon, new_blocks=account.new_block_epsilon, block=f"block {account.block}"
    )
    return [*lines, f"leaves     {left}: after it, {following}"]


def _amounts(plan: Plan) -> str:
    """List the amount spent in each currency."""
    pure, rho, mu = plan.amounts.epsilon, plan.amounts.rho, plan.amounts.mu
    paid = ((Currency.PURE, "epsilon", pure), (Currency.ZCDP, "rho", rho), (Currency.GDP, "mu", mu))
    said = [
        f"{name} {(at_most if kind is Currency.PURE else figure)(number)} in {kind}{' (charged)' if kind == plan.account.currency else ''}"
        for kind, name, number in paid
        if number is not None
    ]
    return f"that is    {', '.join(said)}"


def _universe_cells(plan: Plan) -> str:
    if plan.universe.cells is not None:
        return cells(plan.universe.cells)
    exponent = int(plan.universe.log10_cells)
    return f"{min(10 ** (plan.universe.log10_cells - exponent), 9.9):.1f}e{exponent}"


def _limit_lines(limits: PlannedLimit) -> list[str]:
    """Say how the limit on rows per unit is chosen, and what each limit costs."""
    most = limits.costs[-1].rows_per_unit
    costs = ", ".join(f"{cost.rows_per_unit}: {percent(cost.error)}" for cost in limits.costs)
    bought = f"for {percent(limits.share)} of the budget, with noise {limits.noise:.1f}"
    return [
        f"limit      1 to {most} rows of each {limits.unit}: the run first counts the units by their number of rows, {bought}",
        "           it then takes the limit with the least expected error, from noise and from lost rows",
        f"           error of a column from noise alone, by limit: {costs}",
        f"           all other figures are for a limit of {limits.likely}, which may be another one than the run chooses",
    ]


def _expected_rows(total: PlannedTotal) -> str:
    return (
        f"expects    {total.least:,} to {total.most:,} rows: the run first measures the total, for {percent(total.share)} of the budget, with noise "
        f"{total.noise:.1f}; it stops if the noisy total is more than {math.ceil(total.margin):,} outside"
    )


def _persons(persons: PlannedPersons) -> str:
    agree = f", which agree in {', '.join(persons.constant)}" if persons.constant else ""
    return (
        f"persons    the rows of one synthetic {persons.unit} stay together{agree}: the run learns how many rows each {persons.unit} has, for "
        f"{percent(persons.share)} of the budget, with noise {persons.noise:.1f} in each number of persons"
    )


def _depends(function: PlannedFunction) -> str:
    return (
        f"depends    {function.words}: the function is learned from {function.cells:,} counts with noise {function.noise:.1f}, "
        f"for {percent(function.share)} of the budget"
    )


def _discovery(discovery: PlannedDiscovery) -> str:
    if discovery.places is not None:
        what, clear = f"the distribution over {discovery.places:,} values", "a value stands out with"
    else:
        what, clear = f"at most {discovery.cells:,} cells", "finds values with"
    levels = f"{discovery.levels} levels" if discovery.levels > 1 else "one level"
    return (
        f"finds      {discovery.name}: {what}, in {levels} with noise {discovery.noise:.1f}, "
        f"for {percent(discovery.share)} of the budget; {clear} about {discovery.least:,} rows or more"
    )


def _round_lines(rounds: PlannedRounds | None, strategy: type[StrategySpec]) -> list[str]:
    """Describe the rounds, and the marginals that they select from."""
    if rounds is None:
        return ["rounds     none: the workload has only single columns, or noise would swamp every pair of them"]
    what = "one count" if strategy.single_counts else "a marginal"
    fewer = f" of at most {rounds.at_most}" if rounds.number < rounds.at_most else ""
    lines = [f"rounds     {rounds.number}{fewer}, each measures {what} with noise {rounds.noise:.1f}"]
    if rounds.worth_cells is not None:
        few = rounds.worth_cells < 4  # of a pair of columns
        lines.append(
            "           too much noise to measure any pair of columns, so they measure single columns again; ask for more epsilon"
            if few
            else f"           at this noise a marginal is worth measuring up to {rounds.worth_cells:,} cells"
        )
    candidates = rounds.candidates
    whose = "the counts of " if strategy.single_counts else ""
    marginals, sizes = "1 marginal", f"{cells(candidates.largest)} cells"
    if candidates.number > 1:
        marginals = f"{candidates.number:,} marginals"
        sizes = f"{cells(candidates.smallest)} to {sizes}, median {cells(candidates.median)}"
    lines.append(f"candidates {whose}{marginals} of {sizes}")
    reasons = ((candidates.too_noisy, "for this noise"), (candidates.too_large, "for the model"))
    too_many = [f"{number:,} {why}" for number, why in reasons if number]
    if too_many:
        instead = "these are measured " + ("with merged cells" if strategy.merges_cells else "only in part")
        lines.append(f"           with too many cells: {' and '.join(too_many)}; {instead}")
    return lines


def _rounded(number: float) -> str:
    """Format a number with two significant digits.

    >>> _rounded(1234), _rounded(7.6)
    ('1,200', '8')
    """
    places = max(0, math.floor(math.log10(number)) - 1)
    return f"{round(number, -places):,.0f}"


def _duration(seconds: float) -> str:
    """Format a rough duration, to about one significant digit.

    >>> _duration(0.4), _duration(23), _duration(110), _duration(5000), _duration(90_000)
    ('1 s', '20 s', '2 min', '1 h', '25 h')
    """
    if seconds < 10:
        return f"{max(1, round(seconds))} s"
    if seconds < 55:
        return f"{round(seconds, -1):.0f} s"
    return f"{round(seconds / 60)} min" if seconds < 3300 else f"{round(seconds / 3600)} h"


def _columns(declaration: Declaration, named: list[str]) -> list[str]:
    """Return the columns of a marginal. A declared name that contains a comma is not split."""
    names = declaration.universe.names
    return [name for text in named for name in ([text] if text in names else text.split(","))]


def _target_text(target: Target, *, discovered: bool, chooses: bool) -> str:
    currency = Currency(target.currency)
    paid = "" if currency is Currency.PURE else f" ({currency.symbol} {figure(target.amount)})"
    how = "like every single column" if target.rounds is None else f"if one of the {target.rounds} rounds measures it"
    now = "too little for any run" if target.spec_error is None else f"an error of {percent(target.spec_error)}"
    lines = [
        f"epsilon    {at_most(target.epsilon)} at delta {at_most(target.delta)}{paid}; the spec has {at_most(target.spec_epsilon)}: {now}",
        f"marginal   {' x '.join(target.columns)}: {'at most ' if discovered else ''}{cells(target.cells)} cells, measured with noise {target.noise:,.1f}, {how}",
        *_row_lines(target),
        f"error      {percent(target.error)} of the rows; at most {at_most(100 * target.wanted)} % was asked for",
        "           from noise alone, summed over all cells; a release can be better or worse",
    ]
    if chooses:
        lines.append("limit      chosen by the run: if it is another one than above, the error is, too")
    return "\n".join([*lines, *([f"account    would refuse: {target.refused}"] if target.refused else ())])
