"""Compare dpflow with other libraries' mechanisms on the same table, workload and budget, on one machine in one run.

    python -m benchmarks.peers --data adult7 adult_discretized --epsilon 1 --seeds 1 --limit 3600 --json

Each peer is installed from PyPI into its own environment (in `$DPFLOW_BENCH_ENVS`, or `.bench-envs` in the project) and runs in its own
process, one at a time. CPU seconds and peak memory are those of that process, from after its imports until its rows are made; the wall time
is that of the whole process. If a peer cannot be installed, fails or exceeds a limit, its row states the reason.
"""

import argparse
import dataclasses
import json
import sys
import time
from typing import Any

from benchmarks.accuracy import measure
from benchmarks.peers_catalogue import PEERS, Peer
from benchmarks.peers_environments import InstallError, environments_folder, interpreter_for
from benchmarks.peers_runs import SCRIPTS, Budget, Limits, Outcome, errors_of, run_peer
from benchmarks.peers_table import OURS, Row, mean_row, ratios, ratios_text, settings_text, table_text
from benchmarks.tables import BenchmarkTable, load
from benchmarks.workload_error import bootstrap, independent_columns, marginals_measured
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, budget_of

REFERENCES = {"independent columns": independent_columns, "bootstrap": bootstrap}
REFERENCE_SEEDS = 5
SMOKE_ROWS = 2000
SMOKE_COLUMNS = ("workclass", "marital-status", "sex", "income>50K")


def main() -> None:
    """Measure every mechanism on every table, and print tables or one JSON object."""
    arguments = _arguments()
    budget = _budget(arguments.epsilon, arguments.delta)
    compared = []
    for name in arguments.data:
        table = _part(load(name)) if arguments.smoke else load(name)
        rows = [_reference(reference, table) for reference in REFERENCES]
        peers = [_peer(PEERS[peer], table, budget=budget, arguments=arguments) for peer in arguments.peers]
        if not arguments.smoke:
            rows.append(_ours(table, budget=budget, seeds=arguments.our_seeds, currency=arguments.currency))
        rows += peers
        compared.append((table, rows, ratios(rows, peers=set(PEERS))))
    print(_as_json(compared, budget) if arguments.json else _as_text(compared, budget))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["adult_discretized", "adult7"])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-9)
    parser.add_argument("--peers", type=_names, default=list(PEERS), help=f"some of {','.join(PEERS)}")
    parser.add_argument("--seeds", type=int, default=1, help="the number of runs of each peer, each with fresh noise")
    parser.add_argument("--our-seeds", type=int, default=3, help="the number of runs of dpflow, which are fast")
    parser.add_argument("--limit", type=float, default=3600.0, help="the wall-time limit of a peer's run, in seconds")
    parser.add_argument("--memory", type=float, default=12_000.0, help="the memory limit of a peer's run, in megabytes")
    parser.add_argument(
        "--set", action="append", type=_setting, default=[], metavar="PEER.NAME=VALUE", help="override a peer's setting"
    )
    parser.add_argument("--currency", choices=["zcdp", "gdp"], help="the currency of dpflow's account; default: zcdp")
    parser.add_argument(
        "--smoke", action="store_true", help="use few rows, columns and rounds: only shows that the peers work"
    )
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _names(text: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; choose from {', '.join(PEERS)}")
    return names


def _setting(text: str) -> tuple[str, str, Any]:
    place, _, value = text.partition("=")
    peer, _, name = place.partition(".")
    if peer not in PEERS or not name or not value:
        raise argparse.ArgumentTypeError(f"{text}: write PEER.NAME=VALUE, for example dpmm-aim.max_model_size=1")
    try:
        return peer, name, json.loads(value)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"{text}: the value must be JSON") from error


def _budget(epsilon: float, delta: float) -> Budget:
    _, cap = budget_of(epsilon, delta=delta, currency=Currency.ZCDP)
    return Budget(epsilon, delta, cap / AMOUNT_OF_ONE)


def _part(table: BenchmarkTable) -> BenchmarkTable:
    sizes = {column: table.sizes[column] for column in SMOKE_COLUMNS}
    frame = table.frame[list(sizes)].head(SMOKE_ROWS)
    return dataclasses.replace(table, name=f"{table.name} (part)", frame=frame, sizes=sizes)


def _reference(name: str, table: BenchmarkTable) -> Row:
    outcomes = [Outcome(errors_of(table, REFERENCES[name](table, seed=seed))) for seed in range(REFERENCE_SEEDS)]
    return mean_row(name, outcomes, settings="no privacy", limits="")


def _ours(table: BenchmarkTable, *, budget: Budget, seeds: int, currency: str | None) -> Row:
    outcomes = []
    for _ in range(seeds):
        begin = time.perf_counter()
        run = measure(table, strategy=None, epsilon=budget.epsilon, delta=budget.delta, currency=currency)
        wall = time.perf_counter() - begin
        outcomes.append(Outcome(run["error"], run["cpu_seconds"], run["peak_memory_mb"], wall))
        _say(table, OURS, outcomes[-1])
    return mean_row(OURS, outcomes, settings=f"defaults, {currency or 'zcdp'}", limits="")


def _peer(peer: Peer, table: BenchmarkTable, *, budget: Budget, arguments: argparse.Namespace) -> Row:
    if peer.absent:
        return Row(peer.name, "", "", Outcome(reason=peer.absent))
    settings = peer.settings_for(table.sizes, smoke=arguments.smoke)
    settings |= {name: value for place, name, value in arguments.set if place == peer.name}
    limits = Limits(arguments.limit, arguments.memory)
    shown = {"settings": settings_text(settings), "limits": f"{limits.seconds:,.0f} s, {limits.memory_mb:,.0f} MB"}
    try:
        interpreter = interpreter_for(peer.requirements, folder=environments_folder())
    except InstallError as error:
        return Row(peer.name, **shown, outcome=Outcome(reason=str(error)), runs="0", note=peer.note)
    outcomes = []
    for _ in range(arguments.seeds):
        command = [str(interpreter), str(SCRIPTS / peer.script)]
        outcomes.append(run_peer(command, table=table, budget=budget, settings=settings, limits=limits))
        _say(table, peer.name, outcomes[-1])
    return mean_row(peer.name, outcomes, **shown, note=peer.note)


def _say(table: BenchmarkTable, name: str, outcome: Outcome) -> None:
    # Hours may pass before the end. This way a crash does not lose finished measurements.
    print(json.dumps({"data": table.name, "who": name, **dataclasses.asdict(outcome)}), file=sys.stderr, flush=True)


def _as_text(compared: list[Any], budget: Budget) -> str:
    parts = []
    for table, rows, _ in compared:
        title = (
            f"{table.name}: {len(table.frame):,} rows, {len(table.sizes)} columns, "
            f"{marginals_measured(len(table.sizes), order=3)} 3-way marginals, epsilon {budget.epsilon:g}, delta {budget.delta:g}, add-remove"
        )
        parts += [table_text(title, rows), ""]
    return "\n".join([*parts, *(ratios_text(table.name, found) for table, _, found in compared)])


def _as_json(compared: list[Any], budget: Budget) -> str:
    tables = [
        {
            "data": table.name,
            "rows": len(table.frame),
            "compared": [dataclasses.asdict(row) for row in rows],
            "ratios": found,
        }
        for table, rows, found in compared
    ]
    return json.dumps({**dataclasses.asdict(budget), "tables": tables})


if __name__ == "__main__":
    main()
