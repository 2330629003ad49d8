"""Parse the arguments, call the verb, print its answer and return an exit code. A user never sees a traceback."""

import argparse
import json
import logging
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dpcore.cli.verbs import VERBS, Verb
from dpcore.errors import BudgetRefused, DpflowError, SpecError, UsageError
from dpcore.places import PRIVATE_VARIABLE
from dpcore.private_log import record
from dpcore.scalars import is_unicode
from dpcore.version import installed_version

if TYPE_CHECKING:
    from dpcore.cli.output import Answer, Listing, UsedLedger
    from dpcore.cli.specs import Runner
    from dpcore.ledger import Ledger

EPILOG = "exit codes: 0 success, 1 other error, 2 invalid spec or usage, 3 refused for lack of budget, 4 ledger damaged"

_UNNOTICED = (
    "no head of this ledger is remembered here, so an old copy would not be noticed; work in the project's folder, or set "
    f"{PRIVATE_VARIABLE}"
)


def main(argv: list[str] | None = None, *, runner: "Runner", more: Mapping[str, Verb] = MappingProxyType({})) -> int:
    """Run one verb. `runner` makes a release; `more` are verbs defined outside dpcore."""
    words = sys.argv[1:] if argv is None else argv
    for number, word in enumerate(words, start=1):
        if not is_unicode(word):
            return _refuse(
                UsageError(f"argument {number} is not valid UTF-8; write it as UTF-8"), as_json="--json" in words
            )
    named = next((word for word in words if not word.startswith("-")), "")
    arguments = parser(more, loaded=[named] if named in {**VERBS, **more} else []).parse_args(words)
    arguments.runner = runner
    from dpcore.ledger import noting_opened  # noqa: PLC0415  the list of verbs needs none of it

    with noting_opened() as opened:
        return _call(arguments, opened)


def _call(arguments: argparse.Namespace, opened: "list[Ledger]") -> int:
    """Call the verb, print its answer or its error, and return the exit code."""
    begun = False
    try:
        with _progress_shown():
            result: Answer | Listing = arguments.verb(arguments)
        with closing(result.pieces(as_json=arguments.json, used=_used(opened))) as pieces:
            for piece in pieces:
                begun = True
                _write(piece)
        sys.stdout.flush()
        if opened and opened[-1].not_fixed:
            print(f"dpflow: {_UNNOTICED}", file=sys.stderr)  # noqa: T201
    except DpflowError as error:
        # Inside a partly written JSON answer an error object would only garble it. The answer stays unfinished; stderr says why.
        return _refuse(error, as_json=arguments.json and not begun, used=_used(opened))
    except KeyboardInterrupt as interrupt:
        print(f"interrupted{interrupt}", file=sys.stderr)  # noqa: T201
        return 130
    except BrokenPipeError:
        # The reader is gone, so the final flush must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001  the text of an unexpected error may be private, so it must not reach the terminal
        details = record(error, where="dpflow")
        return _refuse(
            DpflowError(
                f"unexpected {type(error).__name__}; the details are in the steward's log {details or '(which could not be written; name a folder for it in DPFLOW_PRIVATE)'}"
            ),
            as_json=arguments.json and not begun,
        )
    return result.exit_code


def _write(piece: str) -> None:
    """Write to standard output. Characters that its encoding lacks are written as backslash escapes."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(piece.encode(encoding, errors="backslashreplace").decode(encoding))


def _used(opened: "Sequence[Ledger]") -> "UsedLedger | None":
    """Return the ledger that the verb opened last, if any."""
    if not opened:
        return None
    from dpcore.cli.output import UsedLedger  # noqa: PLC0415  likewise

    ledger = opened[-1]
    return UsedLedger(ledger.place, ledger.known_identity, hides=ledger.hides, warning=ledger.warning)


def _refuse(error: DpflowError, *, as_json: bool, used: "UsedLedger | None" = None) -> int:
    if as_json:
        data: dict[str, Any] = {"error": str(error), "exit_code": error.exit_code}
        if used:
            data["ledger"] = used.data
        if isinstance(error, BudgetRefused):
            from dpcore.privacy.accounting import AMOUNT_OF_ONE  # noqa: PLC0415  likewise

            data |= {
                "requested": error.requested / AMOUNT_OF_ONE,
                "remaining": error.remaining / AMOUNT_OF_ONE,
                "difference": error.difference / AMOUNT_OF_ONE,
            }
        print(json.dumps(data))  # noqa: T201
    else:
        named = used is None or isinstance(error, SpecError) or used.place in str(error)
        where = "" if named or used is None else f" ({used.named})"
        for line in f"{error}{where}".splitlines():
            print(f"dpflow: {line}", file=sys.stderr)  # noqa: T201
    return error.exit_code


@contextmanager
def _progress_shown() -> Iterator[None]:
    """Print the run's public progress lines to standard error, so that standard output holds only the result."""
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


def parser(more: Mapping[str, Verb], *, loaded: Collection[str]) -> argparse.ArgumentParser:
    """Return the parser of the command line.

    Args:
        more: Verbs defined outside dpcore.
        loaded: The verbs whose arguments it knows. Of all others it knows the line in the list of verbs.
    """
    verbs = {**VERBS, **more}
    whole = argparse.ArgumentParser(
        prog="dpflow",
        description="Turn a private table into a differentially private synthetic Parquet dataset, charged to one budget ledger.",
        epilog=EPILOG,
    )
    whole.add_argument("--version", action="version", version=f"dpflow {installed_version()}")
    adding = whole.add_subparsers(required=True, metavar="VERB")
    for module in dict.fromkeys(verbs[name].module for name in loaded):
        import_module(module).add_verbs(adding)
    for name, verb in verbs.items():
        if name not in adding.choices:
            adding.add_parser(name, help=verb.about)
    return whole
