"""All noise is the operating system's: a recorded stream decides every result, and no two workers ever share a word."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import shake_256
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from dpcore.mechanisms import DiscreteGaussian
from dpcore.mechanisms.sampling import entropy
from tests.contracts.mechanism_catalogue import CATALOGUE, every_kind

pytestmark = pytest.mark.system_entropy
STREAMS = range(8)
SAME = 0.25
"""The share of a result's parts that may be the same in all streams: of narrow noise some are, and of noise with a seed all."""


@contextmanager
def recorded_stream(number: int) -> Iterator[list[int]]:
    """Let the operating system's own function give a stream of ours; yields how many bytes were asked for each time."""
    asked: list[int] = []

    def give(size: int) -> bytes:
        asked.append(size)
        return shake_256(b"%d %d" % (number, len(asked))).digest(size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", give)
        yield asked


def complaints(draw: Callable[[], Any]) -> list[str]:
    """What speaks against all of a draw's randomness being the operating system's."""
    found, results = [], []
    for number in STREAMS:
        with recorded_stream(number) as asked:
            results.append(np.asarray(draw()))
        if not asked:
            found.append("nothing was asked of the operating system")
    with recorded_stream(number) as asked_again:
        again = np.asarray(draw())
    if not np.array_equal(results[-1], again) or asked != asked_again:
        found.append("the same stream gave another result")
    if (np.array(results) == results[0]).all(axis=0).mean() > SAME:
        found.append("a part of the result is the same whatever the stream is")
    return found


@pytest.mark.parametrize("name", list(CATALOGUE))
def test_a_recorded_stream_decides_every_part_of_every_result(name: str) -> None:
    assert complaints(CATALOGUE[name].drawn) == []


def test_no_mechanism_is_left_out() -> None:
    assert every_kind() == {entry.kind for entry in CATALOGUE.values()}


@pytest.mark.parametrize("seed", [None, 0], ids=["unseeded", "seeded"])
@pytest.mark.parametrize("replaced", ["all", "half"])
def test_randomness_of_numpy_is_noticed(monkeypatch: pytest.MonkeyPatch, seed: int | None, replaced: str) -> None:
    real = DiscreteGaussian.draw

    def draw(self: DiscreteGaussian, counts: np.ndarray) -> np.ndarray:
        rng = np.random.default_rng(seed)
        ours = np.rint(rng.normal(0, self.scale, counts.shape)).astype(np.int64)
        return np.where(
            np.arange(counts.size) % 2 == 0, counts + ours, counts + ours if replaced == "all" else real(self, counts)
        )

    monkeypatch.setattr(DiscreteGaussian, "draw", draw)
    found = complaints(CATALOGUE["discrete-gaussian 2"].drawn)
    expected = "the same stream gave another result" if seed is None else "a part of the result is the same whatever"
    assert any(complaint.startswith(expected) for complaint in found)


THREADS, WORDS = 8, 5000


def shared_words(parts: list[np.ndarray]) -> int:
    """How many of the words of several workers are not new."""
    words = np.concatenate(parts)
    return words.size - np.unique(words).size


def by_threads() -> list[np.ndarray]:
    together = Barrier(THREADS)

    def worker(_number: int) -> np.ndarray:
        together.wait()
        return np.concatenate([entropy.random_words(50) for _ in range(WORDS // 50)])

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(worker, range(THREADS)))


def test_threads_never_share_a_word() -> None:
    assert shared_words(by_threads()) == 0


def test_a_generator_for_each_thread_with_one_seed_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = int.from_bytes(os.urandom(8))
    monkeypatch.setattr(
        entropy, "random_words", lambda count: np.random.default_rng(seed).integers(0, 2**64, count, dtype=np.uint64)
    )
    assert shared_words(by_threads()) > 0


WORKERS = """
import concurrent.futures, json, multiprocessing, os
import numpy as np
from dpcore.mechanisms import DiscreteGaussian
from dpcore.mechanisms.sampling import entropy
from dpcore.privacy.protection import Sensitivity

BUFFERED
wide = DiscreteGaussian(scale=1e15 ** 0.5, sensitivity=Sensitivity(1, 1, 1))

def words(_=None):
    return entropy.random_words(100).tolist() + [int(n) for n in wide.draw(np.zeros(20, dtype=np.int64))]

mine = words()  # used before the fork: whatever there is to inherit is there
parts = [mine]
for _ in range(4):
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, json.dumps(words()).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        parts.append(json.load(pipe))
    os.wait()
fork = multiprocessing.get_context("fork")
with concurrent.futures.ProcessPoolExecutor(2, mp_context=fork) as pool:
    parts += list(pool.map(words, range(8)))
parts.append(words())
print(json.dumps(parts))
"""
BUFFERED = """
class Buffered:
    rng = np.random.default_rng(int.from_bytes(os.urandom(16)))
entropy.random_words = lambda count: Buffered.rng.integers(0, 2**64, count, dtype=np.uint64)
"""


def by_forks(planted: str) -> list[list[int]]:
    """Words and noise of a process, of some that it forked, and of a pool's, in an interpreter of its own."""
    script = WORKERS.replace("BUFFERED", planted)
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    parts: list[list[int]] = json.loads(done.stdout)
    return parts


def repeated(parts: list[list[int]]) -> int:
    return sum(times - 1 for times in Counter(word for part in parts for word in part).values())


def test_forked_workers_never_share_a_word() -> None:
    parts = by_forks("")
    assert [len(part) for part in parts] == [120] * 14
    # noise of so large a scale is as good as never equal by chance: a coincidence among 280 is one in some thousand
    assert repeated([part[:100] for part in parts]) == 0
    assert repeated([part[100:] for part in parts]) <= 2


def test_a_buffered_generator_that_is_forked_would_be_noticed() -> None:
    parts = by_forks(BUFFERED)
    assert repeated([part[:100] for part in parts]) >= 300
    assert repeated([part[100:] for part in parts]) >= 60
