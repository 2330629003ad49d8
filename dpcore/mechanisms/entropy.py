"""The only source of randomness on the private side that is ours: the operating system's."""

import os

import numpy as np
import numpy.typing as npt


def random_words(count: int) -> npt.NDArray[np.uint64]:
    """Return `count` independent uniform 64-bit words.

    There is no seed to pass, by design. A test that needs the same noise twice replaces this function.
    """
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
