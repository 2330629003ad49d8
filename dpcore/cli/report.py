"""The verb that compares a release with the true table: report."""

import argparse
from pathlib import Path

from dpcore.cli.arguments import RELEASE, Subparsers, add_verb, argument
from dpcore.cli.output import Answer
from dpcore.cli.verbs import VERBS
from dpcore.errors import UsageError

MORE = (
    ": the error of its workload, its columns and their dependence, learning on it, and where its errors come from. The result is private: a "
    "page and a JSON file in the private folder, and nothing of it is printed. Nothing is charged, unless --epsilon buys figures that may be "
    "published"
)


def add_verbs(verbs: Subparsers) -> None:
    """Add the verb to the parser."""
    add_verb(
        verbs,
        "report",
        VERBS["report"].about,
        RELEASE,
        argument("spec", metavar="SPEC", type=Path, help="the spec that the release was made from"),
        argument(
            "--changed", action="store_true", help="compare even if the table has changed since the release was made"
        ),
        argument(
            "--epsilon",
            metavar="E",
            type=float,
            help="also buy three noisy figures from the release's account and write them beside the release, where they may be published",
        ),
        argument(
            "--approve", action="store_true", help="approve, as steward, an --epsilon above the approval threshold"
        ),
        run=_report,
        more=MORE,
    )


def _report(arguments: argparse.Namespace) -> Answer:
    # Other verbs start faster without these.
    from dpcore.comparison.compare import compare  # noqa: PLC0415
    from dpcore.comparison.figures import buy_figures  # noqa: PLC0415

    if arguments.changed and arguments.epsilon is not None:
        raise UsageError(
            "figures of a table that has changed would say nothing about the release; leave out --epsilon or --changed"
        )
    if arguments.approve and arguments.epsilon is None:
        raise UsageError("there is nothing to approve without --epsilon; add it, or leave out --approve")
    written = compare(arguments.release, arguments.spec, allow_changed=arguments.changed)
    lines = [
        "PRIVATE comparison with the true table, for the steward alone; do not publish it:",
        f"  page  {written.page}",
        f"  data  {written.data}",
    ]
    data: dict[str, object] = {"private_page": str(written.page), "private_data": str(written.data), "bought": None}
    if arguments.epsilon is None:
        return Answer(data, "\n".join([*lines, "nothing was charged"]))
    bought = buy_figures(arguments.release, arguments.spec, epsilon=arguments.epsilon, approved=arguments.approve)
    data["bought"] = {
        "file": str(bought.file),
        "run": bought.run,
        "spent": bought.spent,
        "guarantee": bought.promise,
        "figures": [vars(figure) for figure in bought.figures],
    }
    lines += ["", f"figures that may be published, in {bought.file}:"]
    lines += [f"  {figure.words}" for figure in bought.figures]
    return Answer(data, "\n".join([*lines, bought.promise]))
