"""The verbs for the life of a release: latest, releases, withdraw."""

import argparse
from collections.abc import Sequence
from typing import Any

from dpcore.cli.arguments import Subparsers, add_verb, argument
from dpcore.cli.output import Answer, table
from dpcore.cli.verbs import VERBS
from dpcore.errors import ReleaseDamaged
from dpcore.release.integrity import one_line
from dpcore.release.listing import Listed, listed_in
from dpcore.reporting.formatting import at_most
from dpcore.steward.releases import dataset_folder, latest, only_folder, withdraw_release

NAME = "the folder of the dataset's releases or its address, a spec, a registered spec, or a dataset in `releases` here or beside .dpflow"


def add_verbs(verbs: Subparsers) -> None:
    """Add the verbs to the parser."""
    add_verb(
        verbs,
        "latest",
        VERBS["latest"].about,
        argument("name", metavar="NAME", help=NAME),
        run=_latest,
        more=", and nothing else",
    )

    add_verb(
        verbs,
        "releases",
        VERBS["releases"].about,
        argument("name", metavar="NAME", nargs="?", help=f"{NAME}; without it, the only dataset there"),
        run=_releases,
    )

    add_verb(
        verbs,
        "withdraw",
        VERBS["withdraw"].about,
        argument("release", metavar="RELEASE", help="the release's folder, or its name"),
        argument("--reason", metavar="TEXT", required=True, help="why; readers of the release see it"),
        run=_withdraw,
        more="; readers get the reason, the ledger records it, and no budget is refunded. It cannot be undone",
    )


def _latest(arguments: argparse.Namespace) -> Answer:
    path = latest(arguments.name)
    return Answer({"release": path.name, "path": str(path), "data": str(path / "data")}, str(path))


def _releases(arguments: argparse.Namespace) -> Answer:
    folder = only_folder() if arguments.name is None else dataset_folder(arguments.name)
    releases = listed_in(folder)
    data = [_data(release) for release in releases]
    damage = any(release.damage for release in releases)
    text = _text(data) if data else f"there are no releases in {one_line(folder)}"
    return Answer({"releases": data}, text, exit_code=ReleaseDamaged.exit_code if damage else 0)


def _data(release: Listed) -> dict[str, Any]:
    """Return a release as JSON data. Of a damaged one, only its name and place are known."""
    manifest, notice = release.manifest, release.notice
    privacy = manifest.get("privacy", {})
    data = {
        "release": release.name,
        "path": str(release.folder),
        "newest": release.newest and notice is None,
        "withdrawn": notice and {"at": notice.withdrawn_at, "reason": notice.reason, "keep": notice.keep},
        "damage": release.damage and str(release.damage),
    }
    data |= {name: manifest.get(name) for name in ("created", "rows")}
    data |= {name: privacy.get(name) for name in ("epsilon", "delta", "unit", "neighbours")}
    data |= {"blocks": None, "made_from": [], "version": None, "changes": []}
    if manifest:
        data |= {
            "blocks": privacy["blocks"] and privacy["blocks"]["names"],
            "made_from": [part["run"] for part in privacy["made_from"]],
            "version": manifest["version"]["number"],
            "changes": manifest["version"]["changes"],
        }
    return data


def _text(releases: Sequence[dict[str, Any]]) -> str:
    by_block = any(release["blocks"] for release in releases)
    heading = ("release", "created (UTC)", "rows", "epsilon", "delta", "unit", "version", "state")
    rows = [(*heading[:2], "blocks", *heading[2:]) if by_block else heading]
    rows += [
        (
            one_line(release["release"]),
            one_line(release["created"] or "?")[:16].replace("T", " "),
            *((_blocks(release["blocks"]),) if by_block else ()),
            "?" if release["rows"] is None else f"{release['rows']:,}",
            *("?" if release[name] is None else at_most(release[name]) for name in ("epsilon", "delta")),
            one_line(release["unit"] or "?"),
            str(release["version"] or "?"),
            _state(release),
        )
        for release in releases
    ]
    notes = [line for release in releases for line in _notes(release)]
    return "\n".join([table(rows, right={"rows", "epsilon", "delta", "version"}), *([""] if notes else []), *notes])


def _blocks(names: Sequence[str] | None) -> str:
    if not names:
        return ""
    return one_line(names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}")


def _state(release: dict[str, Any]) -> str:
    if release["damage"]:
        return "damaged"
    if release["withdrawn"] is None:
        return "newest" if release["newest"] else ""
    return "withdrawn" if release["withdrawn"]["keep"] is None else "removed"


def _notes(release: dict[str, Any]) -> list[str]:
    """Return damages, the reasons of withdrawals and the differences between versions, one a line."""
    name, gone = one_line(release["release"]), release["withdrawn"]
    lines = [f"version {release['version']} from {name} on: {one_line(change)}" for change in release["changes"]]
    if release["damage"]:
        lines.append(release["damage"])
    if gone is not None:
        lines.append(f"{name}: {_state(release)} on {one_line(gone['at'][:10])}: {one_line(gone['reason'])}")
    return lines


def _withdraw(arguments: argparse.Namespace) -> Answer:
    notice, release, recorded = withdraw_release(arguments.release, reason=arguments.reason)
    data = {
        "release": notice.release,
        "path": str(release),
        "withdrawn_at": notice.withdrawn_at,
        "reason": notice.reason,
        "recorded": recorded,
    }
    more = "no budget was refunded" if recorded else "it was withdrawn before, so that reason stays"
    kept = f"{release}/ keeps its manifest" if release.is_dir() else "its folder is not there"
    return Answer(data, f"{notice.sentence}\n{kept}; {more}")
