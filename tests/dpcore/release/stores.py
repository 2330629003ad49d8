"""What tests of releases in a store share: how to read it, and how to kill whoever changes it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpcore.object_store import ObjectPath, below
from dpcore.release.integrity import walk
from dpcore.release.problems import problems
from tests.conftest import Workspace, visits
from tests.s3 import BUCKET

ADDRESS = f"s3://{BUCKET}/releases"


class Killed(BaseException):
    """The end of a process: nothing catches it."""


def project(folder: Path) -> Workspace:
    """Return a project whose releases are in the store."""
    visits(300, seed=1).to_csv(folder / "visits.csv", index=False)
    space = Workspace(folder, folder / "spec.yaml")
    space.write_spec(("rounds: 4}", f"rounds: 1}}\noutput: {{path: '{ADDRESS}'}}"))
    (folder / ".dpflow").mkdir(mode=0o700)
    space.open_account()
    return space


def folder_of(address: str) -> ObjectPath:
    return ObjectPath(f"{address}/visits")


def killed_after(patch: pytest.MonkeyPatch, changes: int) -> None:
    """Let the process end after so many changes of the store."""
    done = 0

    def mortal(name: str) -> Callable[..., Any]:
        change = getattr(ObjectPath, name)

        def changed(path: ObjectPath, *arguments: Any) -> Any:
            nonlocal done
            if done == changes:
                raise Killed
            done += 1
            return change(path, *arguments)

        return changed

    for name in ("write", "create", "upload", "unlink"):
        patch.setattr(ObjectPath, name, mortal(name))


def complete(folder: ObjectPath) -> list[str]:
    """Return the releases that a reader sees by their manifests, each of which must be complete, and so must what `latest.json` names."""
    seen = []
    for path in folder.iterdir() if folder.exists() else ():
        if (path / "manifest.json").exists():
            assert not any(problems(path))
            seen.append(path.name)
    if (folder / "latest.json").exists():
        assert json.loads(content_of(folder / "latest.json"))["release"] in seen
    return seen


def content_of(path: ObjectPath) -> bytes:
    with path.open() as file:
        return file.read()


def objects_in(folder: ObjectPath) -> list[str]:
    return [str(below(folder, above / name)) for above, _, names in walk(folder) for name in names]
