"""Damage done after a soak on purpose, to see that the rules find it."""

import hashlib
import json
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.ledger import open_ledger
from tests.faults.soak_rules import COMPLETED, REFUSED, Rule, Soaked

_SQLITE = "sqlite:///"


def remove_release(soaked: Soaked) -> Soaked:
    """Take a release away."""
    shutil.rmtree(_release(soaked))
    return soaked


def double_release(soaked: Soaked) -> Soaked:
    """Publish a release twice."""
    release = _release(soaked)
    shutil.copytree(release, release.with_name(f"{release.name}-2"))
    return soaked


def change_value(soaked: Soaked) -> Soaked:
    """Change one count of a release by one, and the manifest with it."""
    release = _release(soaked)
    file = release / "measurements.parquet"
    table = pq.read_table(file)
    counts = table["noisy_count"].to_pylist()
    changed = pa.array([counts[0] + 1, *counts[1:]], pa.int64())
    place = table.schema.get_field_index("noisy_count")
    pq.write_table(table.set_column(place, table.schema.field(place), changed), file)
    manifest = json.loads((release / "manifest.json").read_text(encoding="utf-8"))
    for listed in manifest["files"]:
        if listed["path"] == file.name:
            listed["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    (release / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return soaked


def change_rows(soaked: Soaked) -> Soaked:
    """Change a byte of the synthetic rows."""
    file = _release(soaked) / "data" / "part-00000.parquet"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    return soaked


def leave_partial(soaked: Soaked) -> Soaked:
    """Leave a folder behind that was not finished."""
    (_release(soaked).parent / ".partial-release-0").mkdir()
    return soaked


def forget_completed(soaked: Soaked) -> Soaked:
    """Lose sight of a run that has completed."""
    return _without(soaked, COMPLETED)


def forget_refused(soaked: Soaked) -> Soaked:
    """Lose sight of a run that was refused."""
    return _without(soaked, REFUSED)


def stay_crashed(soaked: Soaked) -> Soaked:
    """Let a refused run end as crashed."""
    return _as(soaked, REFUSED, "Crashed")


def refuse_paid(soaked: Soaked) -> Soaked:
    """Tell of a run that was paid for that it was refused."""
    return _as(soaked, COMPLETED, REFUSED)


def complete_unpaid(soaked: Soaked) -> Soaked:
    """Tell of a run that was refused that it has completed."""
    return _as(soaked, REFUSED, COMPLETED)


def refuse_with_room(soaked: Soaked) -> Soaked:
    """Let the account have room for the runs that were refused."""
    with open_ledger(soaked.ledger) as ledger:
        account = ledger.account(soaked.account)
        ledger.raise_cap(account.name, cap=2 * account.cap, epsilon=2 * account.epsilon, reason="planted")
    return soaked


def delete_operation(soaked: Soaked) -> Soaked:
    """Delete a paid operation."""
    return _tampered(soaked, "DELETE FROM operation WHERE step = 'one-way/01-sex' AND run = ", COMPLETED)


def forget_spending(soaked: Soaked) -> Soaked:
    """Let a run have spent 1 less."""
    return _tampered(soaked, "UPDATE run SET spent = spent - 1 WHERE id = ", COMPLETED)


PLANTED: Mapping[str, Callable[[Soaked], Soaked]] = {
    plant.__name__.replace("_", "-"): plant
    for plant in (
        remove_release,
        double_release,
        change_value,
        change_rows,
        leave_partial,
        forget_completed,
        forget_refused,
        stay_crashed,
        refuse_paid,
        complete_unpaid,
        refuse_with_room,
        delete_operation,
        forget_spending,
    )
}

TELLING: Mapping[str, Rule] = {
    "remove-release": Rule.RELEASE,
    "double-release": Rule.RELEASE,
    "change-value": Rule.MEASURED,
    "change-rows": Rule.MEASURED,
    "leave-partial": Rule.LEFTOVER,
    "forget-completed": Rule.LOST,
    "forget-refused": Rule.LOST,
    "stay-crashed": Rule.ENDED,
    "refuse-paid": Rule.REFUSAL,
    "complete-unpaid": Rule.RELEASE,
    "refuse-with-room": Rule.REFUSAL,
    "delete-operation": Rule.STEPS,
    "forget-spending": Rule.BALANCE,
}
"""The rule that each of them breaks, besides others."""


def _one(soaked: Soaked, end: str) -> str:
    return next(run for run, how in sorted(soaked.ends.items()) if how == end)


def _without(soaked: Soaked, end: str) -> Soaked:
    gone = _one(soaked, end)
    return replace(soaked, ends={run: how for run, how in soaked.ends.items() if run != gone})


def _as(soaked: Soaked, end: str, other: str) -> Soaked:
    return replace(soaked, ends={**soaked.ends, _one(soaked, end): other})


def _release(soaked: Soaked) -> Path:
    with open_ledger(soaked.ledger) as ledger:
        name = ledger.run(_one(soaked, COMPLETED)).release
    return next(soaked.releases.glob(f"*/{name}"))


def _tampered(soaked: Soaked, statement: str, end: str) -> Soaked:
    """Write past the ledger, as whoever owns the database can, in a row of a run that ended so; the rules are back afterwards."""
    run = _one(soaked, end)
    if soaked.ledger.startswith(_SQLITE):
        with closing(sqlite3.connect(soaked.ledger.removeprefix(_SQLITE))) as file, file:
            triggers = file.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
            for name, _ in triggers:
                file.execute(f"DROP TRIGGER {name}")
            file.execute(f"{statement} ?", (run,))
            for _, made in triggers:
                file.execute(made)
    else:
        with psycopg.connect(soaked.ledger, options="-c search_path=dpflow") as connection:
            connection.execute("SET session_replication_role = replica")  # no trigger is asked
            connection.execute(f"{statement} %s", (run,))
    return soaked
