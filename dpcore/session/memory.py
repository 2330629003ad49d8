"""Keep the fits of a session on disk, so that another process need not make them again. Losing them loses nothing but time."""

import hashlib
import os
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from dpcore.answers.uncertainty import Fit
from dpcore.marginals.workload import Axes
from dpcore.models.model import Weights
from dpcore.session.bought import Bought
from dpcore.session.knowledge import Knowledge

FOLDER = "sessions"

DAMAGED = (OSError, ValueError, LookupError, EOFError, BadZipFile, zlib.error)
"""What reading a file raises that is empty, cut off or changed."""


def remembered(knowledge: Knowledge, *, session: str, folder: Path) -> None:
    """Write the fits of a session to the steward's folder, in place of earlier ones. A disk that is full or read-only is no error."""
    if knowledge.fits is None:
        return
    arrays: dict[str, npt.NDArray[Any]] = {"learned": np.array(knowledge.learned, dtype=np.int64)}
    for place, fit in enumerate(knowledge.fits):
        arrays[f"{place}:total"] = np.array(fit.total)
        for axes, function in fit.functions.items():
            arrays[f"{place}:{','.join(map(str, axes))}"] = function
    path = _path(session, folder)
    with suppress(OSError):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path / f".{os.getpid()}"
        with temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())  # else a crash of the machine may leave an empty file under the final name
        temporary.replace(path / _name(knowledge.bought))
        for other in path.glob("*.npz"):
            if other.name != _name(knowledge.bought):
                other.unlink(missing_ok=True)


def recalled(first: Knowledge, stored: Sequence[Bought], *, session: str, folder: Path) -> Knowledge:
    """Return what is known after the longest part of a transcript whose fits are on disk; else what was known at first."""
    path = _path(session, folder)
    for count in range(len(stored), 0, -1):
        part = tuple(stored[:count])
        file = path / _name(part)
        with suppress(*DAMAGED):
            if file.exists():
                return _read(file, first, part)
    return first


def _read(file: Path, first: Knowledge, bought: tuple[Bought, ...]) -> Knowledge:
    totals: dict[int, float] = {}
    functions: dict[int, dict[Axes, Weights]] = {}
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:  # numpy leaves a damaged file open
        for name in arrays.files:
            place, _, rest = name.partition(":")
            if rest == "total":
                totals[int(place)] = float(arrays[name])
            elif rest:
                functions.setdefault(int(place), {})[tuple(map(int, rest.split(",")))] = arrays[name]
        learned = tuple(int(each) for each in arrays["learned"])
    fits = tuple(Fit(totals[place], functions[place]) for place in sorted(totals))
    return replace(first, bought=bought, learned=learned, fits=fits)


def _path(session: str, folder: Path) -> Path:
    return folder / FOLDER / hashlib.sha256(session.encode()).hexdigest()[:16]


def _name(bought: Sequence[Bought]) -> str:
    digest = hashlib.sha256()
    for each in bought:
        digest.update(each.to_bytes())
    return f"{len(bought)}-{digest.hexdigest()[:32]}.npz"
