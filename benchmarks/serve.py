"""Free answers of the service at several clients, compared with an empty handler in the same run.

    python -m benchmarks.serve --json

Two servers run in processes of their own: the service of a session, and a FastAPI application with one empty handler. Clients in other
processes ask both in turn, so that a busy machine slows both. The goal: the median time of a free answer is at most 10 times that of the
empty handler. `repeated` answers were given before, as those of dashboards are. `new` ones are computed: each differs from all before.
"""

import argparse
import json
import os
import socket
import statistics
import tempfile
import time
from itertools import combinations, product
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import httpx

from dpcore.session.analysts import add_analyst
from dpcore.session.session import Session
from tests.conftest import SPEC, Workspace, visits

GOAL = 10.0
HOST = "127.0.0.1"
KINDS = ("empty", "repeated", "new")


def serve_session(folder: str, port: int) -> None:
    """Serve the session in a folder."""
    from dpcore.service.serve import serve  # noqa: PLC0415  in its own process

    os.chdir(folder)
    serve(Path("spec.yaml"), session="s", host=HOST, port=port, rate=1e9)


def serve_nothing(port: int) -> None:
    """Serve an empty handler."""
    import uvicorn  # noqa: PLC0415  likewise
    from fastapi import FastAPI  # noqa: PLC0415

    app = FastAPI()

    @app.post("/empty")
    async def empty() -> dict[str, str]:
        return {}

    uvicorn.run(app, host=HOST, port=port, log_level="critical", access_log=False)


def questions() -> list[str]:
    """Return many different counts."""
    ages = combinations(range(0, 101, 25), 2)
    cities = [each for size in (1, 2, 3) for each in combinations(("north", "south", "west"), size)]
    return [
        f"select count(*) as n from release where age between {low} and {high - 1} and city in "  # noqa: S608  constants
        f"({', '.join(map(repr, city))}) and {smoker} and {sex}"
        for (low, high), city, smoker, sex in product(
            ages, cities, ("smoker", "not smoker", "true"), ("sex = 'F'", "sex = 'M'", "sex is null", "true")
        )
    ]


def client(number: int, *, ports: dict[str, int], token: str, rounds: int, start: Barrier, out: Any) -> None:  # noqa: PLR0913
    """Ask in turn, and return the seconds of each request."""
    own = questions()[number::8]
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=120) as sender:

        def timed(kind: str, port: int, path: str, body: dict[str, Any]) -> None:
            begun = time.perf_counter()
            reply = sender.post(f"http://{HOST}:{port}{path}", json=body)
            seconds[kind].append(time.perf_counter() - begun)
            reply.raise_for_status()

        repeated = {"query": "select city, count(*) as n from release group by city", "within": 1e6}
        timed("repeated", ports["session"], "/ask", repeated)
        seconds["repeated"].clear()
        for kind in KINDS:
            start.wait()  # all clients ask for the same kind at the same time
            for place in range(rounds if kind != "new" else min(rounds, len(own))):
                if kind == "empty":
                    timed(kind, ports["empty"], "/empty", repeated)
                elif kind == "repeated":
                    timed(kind, ports["session"], "/ask", repeated)
                else:
                    timed(kind, ports["session"], "/ask", {"query": own[place], "within": 1e6})
    out.put(seconds)


def measure(folder: Path, *, clients: int, rounds: int) -> dict[str, Any]:
    """Return the median milliseconds of each kind, and its ratio to the empty handler."""
    visits(3000, seed=1).to_csv(folder / "visits.csv", index=False)
    (folder / "spec.yaml").write_text(SPEC, encoding="utf-8")
    Workspace(folder, folder / "spec.yaml").open_account(epsilon=100)
    Session.open("spec.yaml", epsilon=2.0, session="s").leave()
    token = add_analyst("spec.yaml", "ada", share=1.0).token
    context = get_context("spawn")
    ports = {"session": _free_port(), "empty": _free_port()}
    servers = [
        context.Process(target=serve_session, args=(str(folder), ports["session"])),
        context.Process(target=serve_nothing, args=(ports["empty"],)),
    ]
    for server in servers:
        server.start()
    try:
        for port in ports.values():
            _wait_for(port)
        start, out = context.Barrier(clients), context.Queue()
        told = {"ports": ports, "token": token, "rounds": rounds, "start": start, "out": out}
        asking = [context.Process(target=client, args=(number,), kwargs=told) for number in range(clients)]
        for each in asking:
            each.start()
        found = [out.get(timeout=600) for _ in asking]
        for each in asking:
            each.join()
    finally:
        for server in servers:
            server.terminate()
            server.join()
    medians = {kind: statistics.median([one for each in found for one in each[kind]]) for kind in KINDS}
    ratios = {kind: medians[kind] / medians["empty"] for kind in KINDS[1:]}
    return {
        "clients": clients,
        "milliseconds": {kind: round(1000 * median, 2) for kind, median in medians.items()},
        "ratios": {kind: round(ratio, 2) for kind, ratio in ratios.items()},
        "goal": GOAL,
        "reached": max(ratios.values()) <= GOAL,
    }


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as listening:
        return int(listening.getsockname()[1])


def _wait_for(port: int) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            httpx.get(f"http://{HOST}:{port}/", timeout=60)
        except httpx.TransportError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(f"the server on port {port} did not start")


def main() -> None:
    """Measure, and print a table or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=60, help="requests of each kind for each client")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="dpflow-serve-") as folder:
        os.chdir(folder)
        found = measure(Path(folder), clients=arguments.clients, rounds=arguments.rounds)
        os.chdir(before)
    if arguments.json:
        print(json.dumps(found))
        return
    for kind, milliseconds in found["milliseconds"].items():
        print(f"{kind:10} {milliseconds:8.2f} ms  {found['ratios'].get(kind, 1.0):6.2f} times the empty handler")


if __name__ == "__main__":
    main()
