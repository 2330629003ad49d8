"""The verb that adds releases of several blocks to one: merge."""

import argparse
from pathlib import Path

from dpcore.cli.arguments import Subparsers, add_verb, argument
from dpcore.cli.output import Answer
from dpcore.cli.releases import NAME
from dpcore.cli.verbs import VERBS
from dpcore.errors import UsageError
from dpcore.release.integrity import one_line
from dpcore.steward.releases import dataset_folder

MORE = (
    ": rows, measurements and card of all blocks together, from a model that is fitted to the sum of their measurements. Published releases are "
    "read only, and nothing is charged"
)


def add_verbs(verbs: Subparsers) -> None:
    """Add the verb to the parser."""
    add_verb(
        verbs,
        "merge",
        VERBS["merge"].about,
        argument("name", metavar="NAME", help=NAME),
        argument("folder", metavar="FOLDER", type=Path, help="the folder of the new release, which must not exist"),
        argument(
            "--where",
            metavar="SQL",
            help="which blocks, such as \"visit_date between '2026-01-01' and '2026-12-31'\"; default: all",
        ),
        run=_merge,
        more=MORE,
    )


def _merge(arguments: argparse.Namespace) -> Answer:
    # Other verbs start faster without these.
    from dpcore.answers.choice import named_blocks  # noqa: PLC0415
    from dpcore.answers.merged import merge  # noqa: PLC0415
    from dpcore.answers.series import open_series  # noqa: PLC0415

    place = dataset_folder(arguments.name)
    series = open_series(place)
    if series is None:
        raise UsageError(
            f"the releases in {one_line(place)} do not cover blocks, so there is nothing to add; declare `blocks`"
        )
    merged = merge(series, arguments.folder, where=arguments.where)
    manifest = merged.manifest
    blocks = sorted(name for part in manifest["parts"] for name in part["blocks"])
    data = {
        "release": str(merged.folder),
        "rows": manifest["rows"],
        "blocks": blocks,
        "parts": [part["release"] for part in manifest["parts"]],
        "epsilon": manifest["privacy"]["epsilon"],
        "delta": manifest["privacy"]["delta"],
        "guarantee": manifest["privacy"]["guarantee"],
        "warnings": manifest["warnings"],
    }
    text = (
        f"release    {merged.folder}\n"
        f"rows       {manifest['rows']:,}\n"
        f"blocks     {named_blocks(blocks)}, from {len(manifest['parts'])} releases\n"
        f"promise    {manifest['privacy']['guarantee']}"
        + "".join(f"\nwarning    {one_line(warning)}" for warning in manifest["warnings"])
    )
    return Answer(data, text)
