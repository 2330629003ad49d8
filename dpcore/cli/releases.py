"""The verbs for the life of a release: latest, releases, withdraw."""

import argparse
from collections.abc import Sequence
from typing import Any

from dpcore.cli.output import Answer, table
from dpcore.cli.specs import Subparsers, add_verb
from dpcore.errors import ReleaseDamaged
from dpcore.release.integrity import one_line
from dpcore.release.listing import Listed, listed_in
from dpcore.reporting.formatting import at_most
from dpcore.steward.releases import dataset_folder, latest, only_folder, withdraw_release

NAME = "the folder of the dataset's releases or its address, a spec, a registered spec, or a dataset in `releases` here or beside .dpflow"


def add_verbs(verbs: Subparsers, common: argparse.ArgumentParser) -> None:
    """Add the verbs to the parser."""
    newest = add_verb(verbs, "latest", common, "print the path of the newest release", more=", and nothing else")
    newest.add_argument("name", metavar="NAME", help=NAME)
    newest.set_defaults(verb=_latest)

    every = add_verb(verbs, "releases", common, "list the releases of a dataset with their promises")
    every.add_argument("name", metavar="NAME", nargs="?", help=f"{NAME}; without it, the only dataset there")
    every.set_defaults(verb=_releases)

    withdraw = add_verb(
        verbs,
        "withdraw",
        common,
        "withdraw a release: remove its data, keep its manifest",
        more="; readers get the reason, the ledger records it, and no budget is refunded. It cannot be undone",
    )
    withdraw.add_argument("release", metavar="RELEASE", help="the release's folder, or its name")
    withdraw.add_argument("--reason", metavar="TEXT", required=True, help="why; readers of the release see it")
    withdraw.set_defaults(verb=_withdraw)


def _latest(arguments: argparse.Namespace) -> Answer:
    path = latest(arguments.name)
    return Answer({"release": path.name, "path": str(path), "data": str(path / "data")}, str(path))


def _releases(arguments: argparse.Namespace) -> Answer:
    folder = only_folder() if arguments.name is None else dataset_folder(arguments.name)
    releases = listed_in(folder)
    found = [_data(each) for each in releases]
    damage = any(each.damage for each in releases)
    text = _text(found) if found else f"there are no releases in {one_line(folder)}"
    return Answer({"releases": found}, text, exit_code=ReleaseDamaged.exit_code if damage else 0)


def _data(each: Listed) -> dict[str, Any]:
    """Return a release as JSON data. Of a damaged one, only its name and place are known."""
    manifest, notice = each.manifest, each.notice
    privacy = manifest.get("privacy", {})
    data = {
        "release": each.name,
        "path": str(each.folder),
        "newest": each.newest and notice is None,
        "withdrawn": notice and {"at": notice.withdrawn_at, "reason": notice.reason, "keep": notice.keep},
        "damage": each.damage and str(each.damage),
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


def _text(found: Sequence[dict[str, Any]]) -> str:
    by_block = any(each["blocks"] for each in found)
    heading = ("release", "created (UTC)", "rows", "epsilon", "delta", "unit", "version", "state")
    rows = [(*heading[:2], "blocks", *heading[2:]) if by_block else heading]
    for each in found:
        cells = (
            one_line(each["release"]),
            one_line(each["created"] or "?")[:16].replace("T", " "),
            *((_blocks(each["blocks"]),) if by_block else ()),
            "?" if each["rows"] is None else f"{each['rows']:,}",
            *("?" if each[name] is None else at_most(each[name]) for name in ("epsilon", "delta")),
            one_line(each["unit"] or "?"),
            str(each["version"] or "?"),
            _state(each),
        )
        rows.append(cells)
    notes = [line for each in found for line in _notes(each)]
    return "\n".join([table(rows, right={"rows", "epsilon", "delta", "version"}), *([""] if notes else []), *notes])


def _blocks(names: Sequence[str] | None) -> str:
    if not names:
        return ""
    return one_line(names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}")


def _state(each: dict[str, Any]) -> str:
    if each["damage"]:
        return "damaged"
    if each["withdrawn"] is None:
        return "newest" if each["newest"] else ""
    return "withdrawn" if each["withdrawn"]["keep"] is None else "removed"


def _notes(each: dict[str, Any]) -> list[str]:
    """Return damages, the reasons of withdrawals and the differences between versions, one a line."""
    name, gone = one_line(each["release"]), each["withdrawn"]
    lines = [f"version {each['version']} from {name} on: {one_line(change)}" for change in each["changes"]]
    if each["damage"]:
        lines.append(each["damage"])
    if gone is not None:
        lines.append(f"{name}: {_state(each)} on {one_line(gone['at'][:10])}: {one_line(gone['reason'])}")
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
