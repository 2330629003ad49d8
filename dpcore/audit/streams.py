"""Where the noise comes from: random words that are watched, or recorded and given again.

For made-up data only, in a process that does nothing else: noise that is drawn from recorded words protects nobody.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.errors import UsageError
from dpcore.mechanisms.sampling import entropy

Words: TypeAlias = npt.NDArray[np.uint64]
Source: TypeAlias = Callable[[int], Words]


@contextmanager
def taken_from(source: Source) -> Iterator[None]:
    """Let all mechanisms of this process take their random words from another source for a while."""
    before = entropy.random_words
    vars(entropy)["random_words"] = source
    try:
        yield
    finally:
        vars(entropy)["random_words"] = before


def determined(draw: Callable[[], npt.NDArray[np.int64]]) -> bool:
    """Tell whether a draw takes all its randomness from `entropy.random_words`, and some.

    Words of the operating system are recorded while it draws, and given again: a draw that takes anything from elsewhere comes out
    otherwise, and so does one that takes other numbers of words. With new words it must come out otherwise.
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
            raise UsageError("the same words were not taken in the same way; nothing about this draw is certain")
        return words

    with taken_from(replaying):
        try:
            again = draw()
        except UsageError:
            return False
    return next(remaining, None) is None and np.array_equal(first, again) and not np.array_equal(first, draw())
