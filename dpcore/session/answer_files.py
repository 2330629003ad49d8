"""Publish the answers of a dashboard as Parquet: one file for each query, as `dpflow answer` shows it, and a list of all of them.

The newest answers replace those before, so that programs that draw a dashboard always read the same paths.
"""

import json
import re
from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.errors import OutputError
from dpcore.object_store import AnyPath, ObjectPath
from dpcore.release.atomic_files import replacing
from dpcore.session.dashboard import Answered, Dashboard
from dpcore.spec import Declaration

FOLDER = "_answers"
"""The folder beside those of the datasets. No dataset can have this name, because names begin with a letter or digit."""

LIST = "answers.parquet"

_QUERY = re.compile(r"query-[0-9]+\.parquet")


def answers_folder(declaration: Declaration, name: str) -> AnyPath:
    """Return the folder of a dashboard's answers."""
    return declaration.output_folder.parent / FOLDER / declaration.spec.dataset / name


def file_of(number: int) -> str:
    """Return the name of the file with the answer to a query.

    >>> file_of(7)
    'query-007.parquet'
    """
    return f"query-{number:03}.parquet"


def publish_answers(dashboard: Dashboard, folder: AnyPath) -> None:
    """Write all answers of a dashboard to a folder. Files of an earlier dashboard with more queries are removed.

    Raises:
        OutputError: If they cannot be written. Earlier answers in a local folder are unchanged then.
    """
    answers = dashboard.answers()
    tables = {file_of(answered.number): _table(answered) for answered in answers} | {LIST: _list(answers, dashboard)}
    if not isinstance(folder, ObjectPath):
        with replacing(folder, list(tables)) as partials:
            for partial, table in zip(partials, tables.values(), strict=True):
                pq.write_table(table, partial)
        _remove_others(folder, tables)
        return
    try:
        for name, table in tables.items():  # an object store replaces one object at a time; the list comes last
            content = pa.BufferOutputStream()
            pq.write_table(table, content)
            (folder / name).write(content.getvalue().to_pybytes())
        _remove_others(folder, tables)
    except OSError as error:
        raise OutputError(f"cannot write to {folder}; check the store and its credentials, then run again") from error


def _remove_others(folder: AnyPath, names: Collection[str]) -> None:
    for path in folder.iterdir():
        if _QUERY.fullmatch(path.name) and path.name not in names:
            path.unlink()


def _table(answered: Answered) -> pa.Table:
    table = pa.Table.from_pandas(answered.reply.table, preserve_index=False)
    return table.replace_schema_metadata({"dpflow.query": answered.question.query, "dpflow.status": answered.status})


def _list(answers: Sequence[Answered], dashboard: Dashboard) -> pa.Table:
    session, questions = dashboard.session, dashboard.questions
    about: dict[str, Any] = {
        "session": session.id,
        "account": session.account.name,
        "currency": session.account.currency.symbol,
        "remaining": dashboard.remaining,
        "within": questions.within,
        "level": questions.level,
    }
    rows = [
        {
            "query": answered.number,
            "sql": answered.question.query,
            "file": file_of(answered.number),
            "status": answered.status,
            "paid": answered.paid,
            "half_width": answered.reply.price.half_width,
            "reason": answered.reason,
        }
        for answered in answers
    ]
    return pa.Table.from_pylist(rows).replace_schema_metadata({"dpflow.dashboard": json.dumps(about)})
