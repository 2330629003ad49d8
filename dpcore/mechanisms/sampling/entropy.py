"""The only source of randomness on the private side: the operating system's.

Nothing is kept between calls: each asks the kernel for as many bytes as it returns. So there is no state that a forked
process could inherit or that two threads could both read, and no two callers ever have the same words. A generator of our
own, however good, would have to be seeded again after every fork.

Every module calls `entropy.random_words` through this module, never by a name of its own, so that a test that replaces the
function here replaces all randomness there is.
"""

import os

import numpy as np
import numpy.typing as npt


def random_words(count: int) -> npt.NDArray[np.uint64]:
    """Return `count` independent uniform 64-bit words.

    There is no seed to pass, by design. A test that needs the same noise twice replaces this function.
    """
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
