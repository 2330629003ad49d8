"""Workloads and what is worth measuring for them."""

from dpcore.queries import Workload


def test_all_marginals_of_an_order_are_listed_once() -> None:
    assert len(Workload.all_of(attributes=7, order=3).marginals) == 35
    assert Workload.all_of(attributes=2, order=3).marginals == ((0, 1),)


def test_listed_marginals_are_sorted_and_kept_once() -> None:
    assert Workload.of([(2, 0), (0, 2), (1, 1)]).marginals == ((0, 2), (1,))


def test_parts_are_all_that_the_workload_is_made_of_smaller_ones_first() -> None:
    parts = Workload.of([(0, 1, 2), (2, 3)]).parts()
    assert set(parts) == {(0,), (1,), (2,), (3,), (0, 1), (0, 2), (1, 2), (2, 3), (0, 1, 2)}
    assert [len(part) for part in parts] == sorted(len(part) for part in parts)
