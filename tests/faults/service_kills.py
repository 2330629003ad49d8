"""Kill the servers of a session again and again while clients buy answers, and look for what is lost, doubled or unpaid in the end.

    python -m tests.faults.service_kills --json --seconds 120 --kill-seconds 5 --clients 8

Two server processes of one session share a ledger in PostgreSQL. Every few seconds one of them, in turn, is killed by SIGKILL and started
again. Each two clients ask the same questions in the same order, at any of the servers, so the same question often arrives twice at once. A
client whose connection breaks asks again, until it has an answer. The exit code is 1 if a rule is broken.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import combinations, product
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import httpx
import pytest

import tests.few_replicates  # noqa: F401  as the servers have
from dpcore.ledger import EventKind, open_ledger
from dpcore.places import LEDGER_VARIABLE, PRIVATE_VARIABLE, REGISTRY_VARIABLE, set_variables
from dpcore.session import knowledge
from dpcore.session.analysts import add_analyst
from dpcore.session.session import Session
from dpcore.steward.verify import verify_ledger
from tests.conftest import SPEC, Workspace, visits
from tests.ports import free_port
from tests.postgres import PostgresServer, postgres_folder
from tests.processes import forked

HOST = "127.0.0.1"
READY_SECONDS = 120.0
EPSILON = 500.0  # so much that the budget outlasts the clients
TRIES = (
    6  # of each fit after a purchase: fits take almost all of the time, and their quality matters to none of the rules
)
WITHIN = 4  # rows: less than any answer is known by others' purchases, so that almost every question is bought
ANALYSTS = ("ada", "bob", "eve", "joe")
SHARE = 0.4  # together more than there is


@dataclass
class Seen:
    """What the clients have seen."""

    answers: dict[str, list[str]] = field(default_factory=dict)
    paid: dict[str, list[float]] = field(default_factory=dict)
    refused: Counter[int] = field(default_factory=Counter)
    broken_connections: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, query: str, told: Mapping[str, Any]) -> None:
        """Write down an answer that was bought, by this client or another."""
        with self.lock:
            if told["price"]["stored"] or not told["price"]["free"]:
                self.answers.setdefault(query, []).append(json.dumps(told["rows"], sort_keys=True))
            if not told["price"]["free"]:
                self.paid.setdefault(query, []).append(told["price"]["cost"])


def broken(
    seen: Seen, *, stored: Mapping[str, str], bought: Iterable[str], charged: int, kills: int, over: Iterable[str]
) -> list[str]:
    """Return which rules are broken.

    Args:
        seen: What the clients have seen.
        stored: The answer that each question has in the end.
        bought: The question of each stored purchase.
        charged: The number of charges.
        kills: The number of kills. Each can lose one charge, if it comes between a charge and its commit.
        over: The analysts who have spent more than their share.
    """
    purchases = Counter(bought)
    found = [f"bought {number} times: {query}" for query, number in purchases.items() if number > 1]
    lost = charged - purchases.total()
    if not 0 <= lost <= kills:
        found.append(f"{lost} charges without an answer, after {kills} kills")
    for query, answers in seen.answers.items():
        if query not in purchases:
            found.append(f"an answer that was sold is lost: {query}")
        elif set(answers) != {stored.get(query)}:
            found.append(f"an answer has changed: {query}")
    found += [f"paid {len(costs)} times: {query}" for query, costs in seen.paid.items() if len(costs) > 1]
    return found + [f"{name} has spent more than the share" for name in over]


def questions(number: int) -> list[str]:
    """Return different questions, each of which is a count."""
    cities = [each for size in (1, 2, 3) for each in combinations(("north", "south", "west"), size)]
    ages = [(low, high) for low, high in combinations((0, 25, 50, 75, 100), 2)]
    made = [
        f"select count(*) as n from release where age >= {low} and age < {high} and city in "
        f"({', '.join(map(repr, city))}) and {smoker} and sex = '{sex}'"
        for (low, high), city, smoker, sex in product(ages, cities, ("smoker", "not smoker"), "FM")
    ]
    random.Random(1).shuffle(made)  # noqa: S311  any order will do
    return made[:number]


def serve_here(folder: str, variables: dict[str, str], port: int) -> None:
    """Serve the session until this process is killed."""
    from dpcore.service.serve import serve  # noqa: PLC0415  after the fork

    os.environ.update(variables)
    os.chdir(folder)
    knowledge.TRIES = TRIES
    serve(Path("spec.yaml"), session="s", host=HOST, port=port, rate=1e6)


class Servers:
    """Two servers on fixed ports."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        self._arguments = str(folder), variables
        self.ports = [free_port(), free_port()]
        self._processes: list[ForkServerProcess] = [self._started(port) for port in self.ports]
        for port in self.ports:
            _wait_for(port)

    def kill(self, place: int) -> None:
        """Kill a server, and start it again."""
        self._processes[place].kill()
        self._processes[place].join()
        self._processes[place] = self._started(self.ports[place])

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()

    def _started(self, port: int) -> ForkServerProcess:
        process = forked().Process(target=serve_here, args=(*self._arguments, port))
        process.start()
        return process


def _wait_for(port: int) -> None:
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end:
        try:
            if httpx.get(f"http://{HOST}:{port}/", timeout=READY_SECONDS).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise TimeoutError(f"the server on port {port} did not start")


def client(number: int, token: str, *, asked: list[str], ports: list[int], seen: Seen, stop: threading.Event) -> None:
    """Ask one question after the other. Each two clients ask the same ones."""
    choice, place = random.Random(number // 2), number  # noqa: S311  which questions, in public
    with httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=READY_SECONDS) as sender:
        while not stop.is_set():
            query = choice.choice(asked)
            while True:
                place += 1
                try:
                    reply = sender.post(
                        f"http://{HOST}:{ports[place % 2]}/ask", json={"query": query, "within": WITHIN}
                    )
                except httpx.TransportError:
                    with seen.lock:
                        seen.broken_connections += 1
                    time.sleep(0.1)
                    continue
                if reply.status_code == 503:
                    time.sleep(0.1)
                    continue
                break
            if reply.status_code == 200:
                seen.note(query, reply.json())
            else:
                with seen.lock:
                    seen.refused[reply.status_code] += 1


def run(folder: Path, url: str, *, seconds: float, kill_seconds: float, clients: int, asked: int) -> dict[str, Any]:
    """Let clients ask and servers die, and return figures and broken rules. The working folder must be `folder`."""
    variables = {
        LEDGER_VARIABLE: url,
        PRIVATE_VARIABLE: str(folder / "private"),
        REGISTRY_VARIABLE: str(folder / "registry"),
    }
    for name in ("private", "registry"):
        (folder / name).mkdir(mode=0o700)
    visits(3000, seed=1).to_csv(folder / "visits.csv", index=False)
    spec = folder / "spec.yaml"
    spec.write_text(SPEC, encoding="utf-8")
    seen, every = Seen(), questions(asked)
    with ExitStack() as stack:
        stack.enter_context(set_variables(variables))
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(knowledge, "TRIES", TRIES)
        Workspace(folder, spec).open_account(epsilon=2 * EPSILON)
        Session.open(spec, epsilon=EPSILON, first_share=0.001, session="s").leave()
        tokens = [add_analyst(spec, name, share=SHARE).token for name in ANALYSTS]
        servers = Servers(folder, variables)
        stack.callback(servers.close)
        until, kills, stop = time.monotonic() + seconds, 0, threading.Event()
        threads = [
            threading.Thread(
                target=client,
                args=(number, tokens[number % 4]),
                kwargs={"asked": every, "ports": servers.ports, "seen": seen, "stop": stop},
            )
            for number in range(clients)
        ]
        for thread in threads:
            thread.start()
        patience = until + READY_SECONDS  # a busy machine gets the time that it needs
        while time.monotonic() < until or (not (kills and seen.answers) and time.monotonic() < patience):
            time.sleep(kill_seconds)
            servers.kill(kills % 2)
            kills += 1
        stop.set()
        for thread in threads:
            thread.join()
        servers.close()
        return _judged(spec, seen, kills)


def _judged(spec: Path, seen: Seen, kills: int) -> dict[str, Any]:
    verify_ledger()
    with open_ledger() as ledger:
        charged = sum(each.run == "s" and each.kind is EventKind.CHARGED for each in ledger.history(None))
        shares = ledger.shares("s").values()
        over = [share.analyst for share in shares if share.spent > share.cap]
    with Session.join(spec) as session:
        told = [each for name in ANALYSTS for each in session.bought_by(name)]
    stored = {each["query"]: json.dumps(each["rows"], sort_keys=True) for each in told}
    return {
        "kills": kills,
        "purchases": len(told),
        "sold answers seen": sum(map(len, seen.answers.values())),
        "lost charges": charged - len(told),
        "broken connections": seen.broken_connections,
        "refused": dict(seen.refused),
        "broken": broken(
            seen, stored=stored, bought=[each["query"] for each in told], charged=charged, kills=kills, over=over
        ),
    }


def main() -> None:
    """Run, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--kill-seconds", type=float, default=5)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--questions", type=int, default=200, help="how many different questions are asked")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="dpflow-service-") as folder,
        PostgresServer(postgres_folder(), durable=False) as server,
    ):
        os.chdir(folder)
        found = run(
            Path(folder),
            server.new_database(),
            seconds=arguments.seconds,
            kill_seconds=arguments.kill_seconds,
            clients=arguments.clients,
            asked=arguments.questions,
        )
        os.chdir("/")
    print(json.dumps(found) if arguments.json else "\n".join(f"{name:20} {told}" for name, told in found.items()))
    sys.exit(bool(found["broken"]))


if __name__ == "__main__":
    main()
