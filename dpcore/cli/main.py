"""Parse, call, print, and end with an exit code that says what happened. A user never sees a traceback."""

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from dpcore.cli import audit, ledger, plan, registry, specs
from dpcore.cli.output import Answer, Listing, UsedLedger
from dpcore.cli.specs import Runner, Subparsers
from dpcore.errors import BudgetRefused, DpflowError, SpecError
from dpcore.ledger import Ledger, noting_opened
from dpcore.privacy.accounting import AMOUNT_OF_ONE
from dpcore.private_log import record
from dpcore.version import installed_version

AddVerbs = Callable[[Subparsers, argparse.ArgumentParser], None]

EPILOG = "exit codes: 0 done, 1 something else went wrong, 2 bad spec or usage, 3 refused for budget, 4 ledger damaged"


def main(argv: list[str] | None = None, *, runner: Runner, more: Sequence[AddVerbs] = ()) -> int:
    """Run one verb; `runner` makes a release, and each of `more` adds verbs that are not dpcore's."""
    arguments = _parser(runner, more).parse_args(argv)
    with noting_opened() as opened:
        return _call(arguments, opened)


def _call(arguments: argparse.Namespace, opened: list[Ledger]) -> int:
    """Call the verb, print what it answers or why it refuses, and return the exit code."""
    begun = False
    try:
        with _progress_shown():
            answer: Answer | Listing = arguments.verb(arguments)
        with closing(answer.pieces(as_json=arguments.json, used=_used(opened))) as pieces:
            for piece in pieces:
                begun = True
                _write(piece)
        sys.stdout.flush()
    except DpflowError as error:
        # In the middle of a long answer an error object would only garble it: it is left unfinished, and the line says why.
        return _refuse(error, as_json=arguments.json and not begun, used=_used(opened))
    except KeyboardInterrupt:
        hint = "; what was measured is kept: go on with dpflow run SPEC --resume and the run id above"
        print(f"interrupted{hint if 'resume' in arguments else ''}", file=sys.stderr)  # noqa: T201
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader left: nothing more to say
        return 0
    except Exception as error:  # noqa: BLE001  the last line before the user: the text of an unforeseen error may be private
        details = record(error, where="dpflow")
        return _refuse(
            DpflowError(
                f"unexpected {type(error).__name__}; the details are in the steward's log {details or '(which could not be written)'}"
            ),
            as_json=arguments.json and not begun,
        )
    return answer.exit_code


def _write(piece: str) -> None:
    """Write to standard output; what its encoding lacks, such as a letter of a name, is written as its code."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(piece.encode(encoding, errors="backslashreplace").decode(encoding))


def _used(opened: Sequence[Ledger]) -> UsedLedger | None:
    """Return the ledger that a verb has used last, if it has used one."""
    if not opened:
        return None
    ledger = opened[-1]
    return UsedLedger(ledger.place, ledger.known_identity, hides=ledger.hides, warning=ledger.warning)


def _refuse(error: DpflowError, *, as_json: bool, used: UsedLedger | None = None) -> int:
    if as_json:
        data: dict[str, Any] = {"error": str(error), "exit_code": error.exit_code}
        if used:
            data["ledger"] = used.data
        if isinstance(error, BudgetRefused):
            data |= {
                "requested": error.requested / AMOUNT_OF_ONE,
                "remaining": error.remaining / AMOUNT_OF_ONE,
                "difference": error.difference / AMOUNT_OF_ONE,
            }
        print(json.dumps(data))  # noqa: T201
    else:
        told = used is None or isinstance(error, SpecError) or used.place in str(error)
        where = "" if told or used is None else f" ({used.named})"
        for line in f"{error}{where}".splitlines():
            print(f"dpflow: {line}", file=sys.stderr)  # noqa: T201
    return error.exit_code


@contextmanager
def _progress_shown() -> Iterator[None]:
    """Print the run's public progress lines to the error stream, so that standard output holds the result only."""
    logger = logging.getLogger("dpcore.progress")
    handler = logging.StreamHandler(sys.stderr)
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before


def _parser(runner: Runner, more: Sequence[AddVerbs]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dpflow",
        description="A private table in, a synthetic Parquet dataset out, on one budget ledger.",
        epilog=EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"dpflow {installed_version()}")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="print one JSON object")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    specs.add_verbs(verbs, common, runner)
    plan.add_verbs(verbs, common)
    registry.add_verbs(verbs, common)
    ledger.add_verbs(verbs, common)
    audit.add_verbs(verbs, common)
    for add_verbs in more:
        add_verbs(verbs, common)
    return parser
