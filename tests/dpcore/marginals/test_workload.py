"""Workloads and what is worth measuring for them."""

from dpcore.marginals.workload import Workload


def test_all_marginals_of_an_order_are_listed_once() -> None:
    assert len(Workload.all_of(attributes=7, order=3).marginals) == 35
    assert Workload.all_of(attributes=2, order=3).marginals == ((0, 1),)


def test_listed_marginals_are_sorted_and_kept_once() -> None:
    assert Workload.of([(2, 0), (0, 2), (1, 1)]).marginals == ((0, 2), (1,))


def test_a_marginal_that_is_listed_twice_has_the_larger_weight() -> None:
    workload = Workload.of([(0, 1), (2, 1), (1, 0)], weights=[5, 1, 2])
    assert (workload.marginals, workload.weights) == (((0, 1), (1, 2)), (5, 1))
    assert Workload.of([(0, 1), (2, 1)]).weights == (1, 1)


def test_a_part_counts_with_all_its_marginals_and_matters_as_much_as_the_weightiest() -> None:
    workload = Workload.of([(0, 1, 2), (1, 2), (2, 3)], weights=[1, 10, 3])
    assert workload.weighted_parts() | {(2,): 14, (1, 2): 11, (0, 2): 1, (2, 3): 3} == workload.weighted_parts()
    assert workload.largest_weights() | {(2,): 10, (1, 2): 10, (0, 2): 1, (2, 3): 3} == workload.largest_weights()
    for part, weight in workload.largest_weights().items():  # a larger set never matters more
        assert all(workload.largest_weights()[axes] >= weight for axes in Workload.of([part]).parts())


def test_with_a_target_there_are_only_marginals_that_hold_it() -> None:
    workload = Workload.all_of(attributes=5, order=3, target=2)
    assert len(workload.marginals) == 6
    assert all(2 in axes for axes in workload.marginals)
    assert workload.target_pairs() == ((0, 2), (1, 2), (2, 3), (2, 4))
    assert Workload.all_of(attributes=2, order=3, target=1).marginals == ((0, 1),)


def test_a_target_of_listed_marginals_only_names_pairs() -> None:
    workload = Workload.of([(0, 1, 2), (1, 3), (0, 4)], target=1)
    assert workload.marginals == ((0, 1, 2), (1, 3), (0, 4))
    assert workload.target_pairs() == ((0, 1), (1, 2), (1, 3))
    assert Workload.of([(0, 1)]).target_pairs() == ()


def test_parts_are_all_that_the_workload_is_made_of_smaller_ones_first() -> None:
    parts = Workload.of([(0, 1, 2), (2, 3)]).parts()
    assert set(parts) == {(0,), (1,), (2,), (3,), (0, 1), (0, 2), (1, 2), (2, 3), (0, 1, 2)}
    assert [len(part) for part in parts] == sorted(len(part) for part in parts)


def test_columns_of_one_cell_tell_nothing() -> None:
    workload = Workload.of([(0, 1, 2), (0, 2), (1, 3)], weights=[2, 5, 3], target=1, ranges=[1, 2])
    telling = workload.telling([4, 1, 6, 1])
    assert dict(zip(telling.marginals, telling.weights, strict=True)) == {(0, 2): 5}
    assert (telling.ranges, telling.target_pairs()) == ((2,), ())
    assert workload.telling([1, 1, 1, 1]) == workload
