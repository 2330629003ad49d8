"""AboveThreshold: find the first of many values that reaches a threshold."""

from fractions import Fraction
from typing import ClassVar

from dpcore.mechanisms.sparse_vector import SparseVector


class AboveThreshold(SparseVector):
    """Report for each value, one after another, whether it reaches a threshold, and stop at the first that does.

    This is the textbook form, with one positive. Half of epsilon goes to the threshold's noise, of scale 2 D / epsilon, and half to
    the values' noise, of scale 4 D / epsilon. `SparseVector` costs the same and splits epsilon better.

    >>> session = AboveThreshold(epsilon=1.0, sensitivity=1, positives=1, monotone=True).begin(1000)
    >>> session.ask(10**6)
    True
    >>> session.ask(10**6)
    Traceback (most recent call last):
    dpcore.errors.UsageError: this session has given its last positive answer; begin a new one, which is charged again

    Guarantee:
        Pure epsilon, for a whole session with adaptively chosen values, by the proof in `SparseVector` with equal shares. If the
        values are monotone, noise of scale 2 D / epsilon is enough for them too. Scales are rounded up. In zCDP and GDP, the
        price of any mechanism with that pure price. Up to the sampler's distance of 2^-109 per noise.

    Sensitivity:
        D, a whole number: the most that one neighbour step can move any one value.

    Randomness:
        The operating system's, through `entropy`. How much is drawn depends on the answers only.

    Reference:
        Dwork and Roth 2014, The algorithmic foundations of differential privacy, Alg. 1.
    """

    name: ClassVar[str] = "above-threshold"

    @staticmethod
    def _share(steps: int) -> Fraction:  # noqa: ARG004  half of epsilon for each
        return Fraction(1)
