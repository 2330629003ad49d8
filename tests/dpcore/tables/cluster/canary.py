"""Read a poisoned table on a cluster that spills everything, break it there, and tell all that the cluster knows; run by test_cluster_canary.

It works in its working folder. What it prints last is where each of two words was found while the cluster was up.
"""

import json
import sys
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dpcore.errors import DpflowError
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.spec.engine import EngineSpec
from dpcore.spec.source import SourceSpec
from dpcore.tables.cluster import connected
from dpcore.tables.cluster.engine import DaskEngine
from dpcore.tables.ingest import Coding, Draws, Fingerprint, Source
from dpcore.universe import Categorical, Integer, Universe
from tests.dpcore.tables.cluster.parts import Careless, CarelessCoding

if TYPE_CHECKING:
    from distributed import Client

UNIVERSE = Universe({"sex": Categorical(values=("F", "M")), "age": Integer(minimum=0, maximum=99, width=25)})
CODING = Coding(
    universe=UNIVERSE,
    protection=Protection(unit="person", rows_per_unit=2, neighbours=Neighbours.ADD_REMOVE),
    window=None,
)


def main() -> None:
    """Read and count, fail in reading and in telling the version, leak on purpose, and search."""
    marker, planted = sys.argv[1:]
    source, draws = Source.locate(SourceSpec(path="visits.csv"), base=Path.cwd()), Draws.fresh()
    broken = Source((Careless(source.parts[0]),))
    careless = CarelessCoding(universe=UNIVERSE, protection=CODING.protection, window=None)
    fingerprint = Fingerprint(draws._key[::-1])
    said, secrets = (
        [],
        {
            "marker": marker.encode(),
            "planted": planted.encode(),
            "key": draws._key,
            "id": draws.unit_key(),
            "version": fingerprint._key,
        },
    )
    with connected(EngineSpec(name="dask", workers=1)) as client:
        engine = DaskEngine(EngineSpec(name="dask"), connect=lambda _: nullcontext(client))
        read = partial(engine.read, draws=draws, fingerprint=fingerprint)
        histogram = engine.count(read(source, coding=CODING), UNIVERSE)
        histogram.marginal((0, 1))
        kept = Path("private").rglob("storage/*dpflow-finish_units*")  # for as long as the histogram
        spilled = [path.read_bytes() for path in kept]
        for fail in (
            lambda: read(broken, coding=CODING),
            lambda: engine.version(source, coding=careless, undecided=("age",), fingerprint=fingerprint),
        ):
            try:
                fail()
            except DpflowError as error:
                said.append(repr(error))
        with suppress(ValueError):
            client.submit(_leak, planted).result()
        places = _places(client) | {"errors": repr(said).encode(), "spilled": b"".join(spilled)}
    found = {
        word: sorted(
            place for place, content in places.items() if secret in content or repr(secret).encode() in content
        )
        for word, secret in secrets.items()
    }
    print(json.dumps({"found": found, "said": len(said), "spilled": len(spilled)}))  # noqa: T201


def _leak(planted: str) -> None:
    raise ValueError(planted)


def _places(client: "Client") -> dict[str, bytes]:
    """Return all that can be asked of scheduler and workers, with the keys, specifications and errors of all tasks."""
    return {
        "scheduler's log": repr(client.get_scheduler_logs()).encode(),
        "workers' logs": repr(client.get_worker_logs()).encode(),
        "nannies' logs": repr(client.get_worker_logs(nanny=True)).encode(),
        "events": repr(client.get_events()).encode(),
        "state": repr(client.run_on_scheduler(_state)).encode(),
    }


def _state(dask_scheduler: object) -> str:
    tasks = dask_scheduler.tasks.values()  # type: ignore[attr-defined]
    erred = dask_scheduler.erred_tasks  # type: ignore[attr-defined]
    told = [(task.key, repr(task.run_spec), task.exception_text, task.traceback_text) for task in tasks]
    return repr((told, [(task.key, task.exception_text, task.traceback_text) for task in erred]))


if __name__ == "__main__":
    main()
