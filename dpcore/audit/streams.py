"""Replace the source of random words to observe, record or replay them.

For made-up data only, in a process that does nothing else: noise drawn from recorded words protects nobody.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeAlias
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from dpcore.errors import UsageError
from dpcore.mechanisms.sampling import entropy

Words: TypeAlias = npt.NDArray[np.uint64]
Source: TypeAlias = Callable[[int], Words]


def taken_from(source: Source) -> AbstractContextManager[Source]:
    """Make all mechanisms of this process take their random words from another source while the context is open."""
    return patch.object(entropy, "random_words", source)


def determined(draw: Callable[[], npt.NDArray[np.int64]]) -> bool:
    """Return whether a draw takes randomness from `entropy.random_words` and from nowhere else.

    The random words are recorded during one draw and replayed in a second. The second draw must request the same numbers of words and
    give the same output; a draw with another source of randomness would differ. A third draw, with new words, must give another output.
    """
    recorded: list[Words] = []
    system = entropy.random_words

    def recording(count: int) -> Words:
        words = system(count)
        recorded.append(words)
        return words

    with taken_from(recording):
        first = draw()
    remaining = iter(recorded)

    def replaying(count: int) -> Words:
        words = next(remaining, None)
        if words is None or words.size != count:
            raise UsageError(
                "the replayed draw requested other random words than the recorded one; it uses another source of randomness"
            )
        return words

    with taken_from(replaying):
        try:
            again = draw()
        except UsageError:
            return False
    return next(remaining, None) is None and np.array_equal(first, again) and not np.array_equal(first, draw())
