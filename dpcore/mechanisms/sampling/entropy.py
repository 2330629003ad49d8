"""The only source of randomness on the private side: the operating system.

No state is kept between calls: each call asks the kernel for exactly the bytes that it returns. So there is no state that a
forked process could inherit or that two threads could both read, and no two callers ever get the same words. A generator of
our own would have to be reseeded after every fork.

Every module calls `entropy.random_words` as an attribute of this module and never imports the function by name, so that a
test that replaces it here replaces all randomness.
"""

import os

import numpy as np
import numpy.typing as npt


def random_words(count: int) -> npt.NDArray[np.uint64]:
    """Return `count` independent uniform 64-bit words.

    There is no seed argument, by design. A test that needs the same noise twice replaces this function.
    """
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
