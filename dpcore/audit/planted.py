"""Deliberately wrong variants of mechanisms, to test that the audit catches them. Never use them on private data."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.audit.events import Outcomes
from dpcore.curator.ask import ask
from dpcore.curator.charges import Statistic
from dpcore.curator.curator import Curator
from dpcore.curator.gate import CountQuery, Gate, Gatekeeper
from dpcore.ledger import Operation, OperationState
from dpcore.mechanisms import Mechanism
from dpcore.mechanisms.descriptions import Description
from dpcore.mechanisms.noise import Noise
from dpcore.mechanisms.noisy_count import NoisyCount
from dpcore.mechanisms.query import Exact
from dpcore.mechanisms.sampling import entropy
from dpcore.mechanisms.sparse_vector import SparseVector
from dpcore.mechanisms.weighing import Weighing
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Protection, Sensitivity
from dpcore.tables.histogram import Histogram


def of_numpy(count: int) -> Outcomes:
    """Return rounded Laplace noise from NumPy's generator: neither exact nor drawn from the operating system's entropy."""
    return np.rint(np.random.default_rng().laplace(size=count)).astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class FloatLaplace:
    """Textbook Laplace noise in floating point: a random sign times the scale times the logarithm of a uniform number.

    Only some of the floats near an output can result from a given count, and different ones from its neighbour.

    Reference:
        Mironov 2012, On significance of the least significant bits for differential privacy.
    """

    scale: float

    def draw(self, count: int, draws: int) -> npt.NDArray[np.float64]:
        """Return noisy counts."""
        words = entropy.random_words(2 * draws)
        uniform = ((words[:draws] >> np.uint64(11)) + np.uint64(1)) * 2.0**-53
        signs = np.where(words[draws:] >> np.uint64(63), 1.0, -1.0)
        outputs: npt.NDArray[np.float64] = count + signs * (self.scale * np.log(uniform))
        return outputs

    def possible_from_nought(self, count: int) -> Any:
        """Return draws, each reported as whether a count of 0 could have produced the output."""

        def draw(draws: int) -> Outcomes:
            outputs = self.draw(count, draws)
            nearest = np.rint(np.exp(-np.abs(outputs) / self.scale) * 2.0**53)
            possible = np.zeros(draws, dtype=np.bool_)
            for step in range(-4, 5):
                uniform = np.clip(nearest + step, 1, 2.0**53) * 2.0**-53
                possible |= np.abs(outputs) == np.abs(self.scale * np.log(uniform))
            return possible.astype(np.int64)

        return draw


def twofold_zero(scale: float) -> Callable[[int], Outcomes]:
    """Return draws of a geometric number with a random sign, where a negative zero is wrongly kept instead of redrawn."""

    def draw(count: int) -> Outcomes:
        words = entropy.random_words(2 * count)
        uniform = ((words[:count] >> np.uint64(11)) + np.uint64(1)) * 2.0**-53
        size = np.floor(-scale * np.log(uniform)).astype(np.int64)
        signed: Outcomes = np.where(words[count:] >> np.uint64(63), size, -size)
        return signed

    return draw


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Noise that is described and priced in one way, and drawn in another."""

    stated: Noise
    drawn: Callable[[Any], Any]

    @property
    def standard_deviation(self) -> float:
        """The stated standard deviation."""
        return self.stated.standard_deviation

    def price(self, currency: Currency) -> int:
        """Return the stated price."""
        return self.stated.price(currency)

    def describe(self) -> Description:
        """Return the stated parameters."""
        return self.stated.describe()

    def draw(self, counts: Any) -> Any:
        """Draw with the other noise."""
        return self.drawn(counts)


class HalfNoiseCurator(Curator):
    """A curator that measures marginals with half the noise that it pays for."""

    def _marginal_mechanism(self, share: Fraction, **way: bool) -> Any:
        stated: Any = super()._marginal_mechanism(share, **way)
        return Variant(stated=stated, drawn=replace(stated, scale=stated.scale / 2).draw)


class FreeCurator(Curator):
    """A curator that draws without charging."""

    def _charge_then(self, *_step: Any, draw: Callable[[Histogram], bytes], **_mechanism: Any) -> bytes:
        return draw(self._received[0]) if self._received else b""


class LateCurator(Curator):
    """A curator that charges after it has drawn."""

    def _charge_then(
        self, step: str, statistic: Statistic, *, mechanism: Mechanism, draw: Callable[[Histogram], bytes]
    ) -> bytes:
        output = draw(self._received[0]) if self._received else b""
        return super()._charge_then(step, statistic, mechanism=mechanism, draw=lambda _: output)


class TrueErrorGate(Gate):
    """A gate that looks at the true error: it compares it with the threshold without noise."""

    __slots__ = ("_threshold",)

    def __init__(self, histogram: Histogram, mechanism: SparseVector, *, threshold: int) -> None:
        super().__init__(histogram, mechanism.begin(threshold))
        self._threshold = threshold

    def compare(self, query: CountQuery, *, expected: int) -> bool:
        """Compare without noise. The noisy comparison is drawn while there is one, but not used."""
        if self.is_open:
            super().compare(query, expected=expected)
        return abs(int(query.on(self._histogram.marginal(query.axes))) - expected) >= self._threshold


class FreeGatekeeper(Gatekeeper):
    """A gatekeeper that opens gates without charging."""

    def open_gate(self, step: str, mechanism: SparseVector, *, threshold: int) -> tuple[Operation, Gate]:
        """Return a gate that nobody has paid for."""
        unpaid = Operation(
            run=self._lease.run,
            step=step,
            attempt=1,
            state=OperationState.CHARGED,
            amount=0,
            mechanism={},
            fence=self._lease.fence,
            sha256=None,
            output=None,
        )
        return unpaid, Gate(self._histogram, mechanism.begin(threshold))

    def close_gate(self, operation: Operation, record: bytes) -> None:
        """Store nothing: the ledger accepts no result without a charge."""


class LateGatekeeper(Gatekeeper):
    """A gatekeeper that draws the noise of a gate's threshold before it charges."""

    def open_gate(self, step: str, mechanism: SparseVector, *, threshold: int) -> tuple[Operation, Gate]:
        """Return a gate that was drawn before it was charged."""
        gate = Gate(self._histogram, mechanism.begin(threshold))
        return self._charge(step, Statistic.GATE, mechanism), gate


class PaidAsCount(Weighing):
    """Sums whose noise is for counts."""

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """Return the sensitivity of counts."""
        return protection.sensitivity


class SensitivityFromOthers(Weighing):
    """Sums whose noise is for the values of the other rows, which are in the middle."""

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """Return the sensitivity of weights that rows in the middle have."""
        return protection.sensitivity_of(self.weights[1:2])


def answered_free(account: str, query: Any, *columns: Any) -> Any:  # noqa: ARG001  nobody pays
    """Answer a query without charging."""
    return query.draw(*columns)


def drawn_while_reading(account: str, query: Any, *columns: Any) -> Any:
    """Ask a query that draws its noise before it is charged."""
    return ask(account, EarlyCount(noise=query.noise, scale=query.scale, protection=query.protection), *columns)


class EarlyCount(NoisyCount):
    """A count that adds its noise as it reads the table."""

    def read(self, *columns: Any, **more: Any) -> Exact:
        """Return an answer that already includes the noise."""
        return Exact(super().answer(super().read(*columns, **more)), protection=self.protection)

    def answer(self, exact: Exact) -> int:
        """Return the value drawn earlier."""
        return int(exact.for_noise())
