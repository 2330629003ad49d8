"""The audit of online sessions has power: planted gates are caught, and so are gates whose code is changed."""

import pytest

from dpcore.audit.cases.gates import gates
from dpcore.curator.gate import CountQuery, Gate
from dpcore.mechanisms.sparse_vector import SparseVector
from dpcore.privacy.accounting import Currency


@pytest.mark.parametrize("name", ["gate on the true error", "gate without a charge", "gate charged too late"])
def test_planted_gates_are_caught(name: str) -> None:
    (bug,) = [bug for bug in gates().bugs if bug.name == name]
    assert not bug.check.run(effort=1.0).sound


def test_a_gate_that_adds_no_noise_to_an_error_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    event = gates().checks[0]
    assert event.run(effort=0.4).sound

    def unnoised(self: Gate, query: CountQuery, *, expected: int) -> bool:
        return abs(int(query.on(self._histogram.marginal(query.axes))) - expected) >= self._session._bar

    monkeypatch.setattr(Gate, "compare", unnoised)
    assert not gates().checks[1].run(effort=0.4).sound


def test_half_the_price_of_a_gate_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    price = SparseVector.price
    monkeypatch.setattr(SparseVector, "price", lambda self, currency: price(self, currency) // 2)
    assert (
        gates().checks[0].charged
        == price(SparseVector(epsilon=4.0, sensitivity=1, positives=1, monotone=False), Currency.PURE) // 2
    )
    assert not gates().checks[0].run(effort=0.5).sound
