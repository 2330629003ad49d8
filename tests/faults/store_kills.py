"""Kill publishers to an object store at random moments, while a reader looks all the time: python -m tests.faults.store_kills [KILLS].

Each kill is a SIGKILL of a process that is publishing, at a random moment between its start and the end of an undisturbed publication. Then the
run is resumed, and may be killed again. The reader lists the bucket without a pause and checks every release that it sees, byte for byte.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import fsspec

from dpcore import synthesize
from dpcore.ledger import RunState, open_ledger
from dpcore.object_store import ObjectPath
from dpcore.runs import synthesis
from dpcore.steward.verify import verify_ledger
from tests.conftest import Workspace, visits
from tests.s3 import BUCKET, new_bucket, s3_server

FOLDER = ObjectPath(f"s3://{BUCKET}/releases/visits")
ROOT = Path(__file__).parents[2]


def publish_in_this_process(run: str) -> None:
    """Make or resume a run, and say when its publication begins and ends."""
    publish = synthesis.publish

    def told(*arguments: Any, **how: Any) -> Any:
        print("begin", flush=True)
        done = publish(*arguments, **how)
        print("end", flush=True)
        return done

    synthesis.publish = told
    with open_ledger() as ledger:
        known = any(each.id == run for each in ledger.runs("visits"))
    synthesize("spec.yaml", run_id=run, resume=known)


class Reader(threading.Thread):
    """Looks at the bucket until it is stopped, and notes everything that is incomplete."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.stopped, self.looks, self.faults = threading.Event(), 0, list[str]()

    def run(self) -> None:
        """Look again and again."""
        store = fsspec.filesystem("s3", use_listings_cache=False, skip_instance_cache=True)
        while not self.stopped.is_set():
            self.look(store)
            self.looks += 1

    def look(self, store: Any) -> None:
        """Check what `latest.json` names, and every manifest, as a stranger would."""
        root = str(FOLDER).removeprefix("s3://")
        try:
            names = [json.loads(store.cat_file(f"{root}/latest.json"))["release"]]
        except FileNotFoundError:
            names = []
        names += [each.split("/")[-2] for each in store.glob(f"{root}/*/manifest.json")]
        for name in dict.fromkeys(names):
            try:
                manifest = json.loads(store.cat_file(f"{root}/{name}/manifest.json"))
                for each in manifest["files"]:
                    found = store.cat_file(f"{root}/{name}/{each['path']}")
                    if sha256(found).hexdigest() != each["sha256"]:
                        self.faults.append(f"{name}/{each['path']} differs from its manifest")
            except (FileNotFoundError, ValueError) as error:
                self.faults.append(f"{name} is incomplete: {type(error).__name__}")


def publishing(run: str) -> subprocess.Popen[str]:
    """Start a process that publishes a run, and return it when its publication begins."""
    command = [sys.executable, "-m", "tests.faults.store_kills", "--child", run]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    if child.stdout is None or child.stdout.readline() != "begin\n":
        raise SystemExit("a publisher has failed before its publication")
    return child


def kill_some(kills: int, chance: random.Random) -> tuple[int, int, list[str]]:
    """Return how many publishers were killed while they were publishing, how often the reader looked, and what it found wrong."""
    child, start = publishing("run-0"), time.monotonic()
    child.stdout.readline()  # type: ignore[union-attr]
    window = time.monotonic() - start
    child.communicate()
    reader, killed, number = Reader(), 0, 1
    reader.start()
    while killed < kills:
        child = publishing(f"run-{number}")
        time.sleep(chance.uniform(0, window))
        child.kill()
        rest, _ = child.communicate()
        killed += "end" not in rest
        with open_ledger() as ledger:
            number += ledger.run(f"run-{number}").state is RunState.SETTLED
    with open_ledger() as ledger:
        unfinished = [run.id for run in ledger.runs("visits") if run.state is RunState.OPEN]
    for run in unfinished:
        publishing(run).communicate()
    reader.stopped.set()
    reader.join()
    with open_ledger() as ledger:
        runs = [run for run in ledger.runs("visits") if run.state is RunState.SETTLED]
    if verify_ledger(complete=[FOLDER]).manifests != len(runs):
        reader.faults.append("not each run has published once")
    return killed, reader.looks, reader.faults


def main(kills: int) -> int:
    """Kill so many publishers, and print what readers saw."""
    with tempfile.TemporaryDirectory() as folder, s3_server() as variables:
        os.environ.update(variables)
        os.chdir(folder)
        new_bucket()
        visits(300, seed=1).to_csv("visits.csv", index=False)
        Path(".dpflow").mkdir(mode=0o700)
        space = Workspace(Path(folder), Path(folder, "spec.yaml"))
        output = f"rounds: 1}}\noutput: {{path: 's3://{BUCKET}/releases'}}"
        space.write_spec(("rounds: 4}", output), ("epsilon: 1.0", "epsilon: 0.1"))
        space.open_account(epsilon=100.0)
        killed, looks, faults = kill_some(kills, random.Random(1))  # noqa: S311  when to kill
        os.chdir(ROOT)
    print(
        f"{killed} publishers killed while publishing, {looks} looks of a reader, {len(faults)} incomplete releases seen"
    )
    print("\n".join(faults))
    return bool(faults)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        publish_in_this_process(sys.argv[2])
    else:
        sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 20))
