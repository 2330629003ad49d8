"""Sum a large array to some of its axes, and multiply small matrices, at about memory speed.

Plain NumPy reaches that speed only where the innermost run of like axes (all kept or all dropped) is long: with the two to ten cells of a
typical column it spends its time starting loops. Sums therefore work on a suffix of the axes that is large enough for long loops.

Everything runs on one thread. Two threads were up to twice as fast on an idle machine, and gained nothing where another process used the
second core. A threaded BLAS call could even wait a whole time slice for its other half, so all calls here stay below that size.
"""

import itertools
import math
from collections.abc import Callable, Container, Sequence
from functools import lru_cache, partial

import numpy as np

from dpcore.marginals.resolutions import Groups
from dpcore.marginals.workload import Axes
from dpcore.models.model import Weights

_LOOP = 32  # from this many cells on, NumPy's own inner loop is fast enough
_SUFFIX = 256  # cells that a vector sum should run over
_CALL = 8192  # cells of a matrix in one BLAS call: OpenBLAS starts threads above 9216
_PRODUCTS = 250_000  # products of numbers in one BLAS call: OpenBLAS starts threads above 262,144
_TILE = 100  # the most rows and columns of a tile
# The most cells of a matrix that also keeps all axes after its own: a larger one takes longer than more calls.
_WIDENED = 1 << 12
_FEW = 32  # groups up to which cells are merged by a product with zeros and ones


def sum_to(array: Weights, axes: Axes) -> Weights:
    """Sum a contiguous array over all axes but the given ones, which are in ascending order.

    First the axes before the suffix are summed, in vectors as long as the suffix. Then the suffix itself is summed.
    """
    steps, summed = _sum_steps(array.shape, axes)
    for step in steps:
        array = step(array)
    return array.reshape(summed)


@lru_cache(maxsize=512)  # a fit takes the same sums thousands of times, and small ones take less time than their plan
def _sum_steps(shape: tuple[int, ...], axes: Axes) -> tuple[tuple[Callable[[Weights], Weights], ...], tuple[int, ...]]:
    """Return the steps of a sum, and the shape of its result."""
    steps: list[Callable[[Weights], Weights]] = []
    keep = [axis in axes for axis in range(len(shape))]
    cut = _cut(shape, _SUFFIX)
    sizes, keeps = _runs(shape[:cut], keep[:cut])
    if not all(keeps):
        dropped = tuple(run for run, keep in enumerate(keeps) if not keep)
        steps.append(partial(_reduced, shape=(*sizes, -1), axis=dropped))
    before = math.prod(_only(sizes, keeps))
    sizes, keeps = _runs(shape[cut:], keep[cut:])
    while not all(keeps):
        run = keeps.index(False)
        before *= math.prod(sizes[:run])
        size, after = sizes[run], math.prod(sizes[run + 1 :])
        if after >= _LOOP or size * after >= (_SUFFIX if after > 1 else _CALL):
            steps.append(partial(_middle_summed, shape=(before, size, after)))
        else:
            matrix = _summing(tuple(sizes[run:]), tuple(keeps[run:]))
            steps.append(partial(_multiplied, shape=(before, size * after), matrix=matrix))
            break
        sizes, keeps = sizes[run + 1 :], keeps[run + 1 :]
    return tuple(steps), tuple(_only(shape, keep))


def _reduced(array: Weights, *, shape: tuple[int, ...], axis: tuple[int, ...]) -> Weights:
    return np.asarray(np.add.reduce(array.reshape(shape), axis=axis))


def _middle_summed(array: Weights, *, shape: tuple[int, int, int]) -> Weights:
    return np.asarray(np.einsum("ijk->ik", array.reshape(shape)))


def _multiplied(array: Weights, *, shape: tuple[int, ...], matrix: Weights) -> Weights:
    return times(array.reshape(shape), matrix)


def _only(sizes: Sequence[int], keeps: Sequence[bool]) -> list[int]:
    return [size for size, keep in zip(sizes, keeps, strict=True) if keep]


def _runs(shape: Sequence[int], keep: Sequence[bool]) -> tuple[list[int], list[bool]]:
    """Merge neighbouring axes that are both kept or both dropped, and leave out axes of size one."""
    sizes: list[int] = []
    keeps: list[bool] = []
    for size, is_kept in zip(shape, keep, strict=True):
        if size == 1:
            continue
        if keeps and keeps[-1] == is_kept:
            sizes[-1] *= size
        else:
            sizes.append(size)
            keeps.append(is_kept)
    return sizes, keeps


def _cut(shape: Sequence[int], cells: int) -> int:
    """Return the start of the shortest suffix of axes with at least `cells` cells."""
    cut, product = len(shape), 1
    while cut and product < cells:
        cut -= 1
        product *= shape[cut]
    return cut


@lru_cache(maxsize=128)  # the plans of many sums share one; the largest is of 260 KB
def _summing(sizes: tuple[int, ...], keeps: tuple[bool, ...]) -> Weights:
    """Return the zero-one matrix that sums a row of cells to the cells of the kept runs."""
    shape = [size if keep else 1 for size, keep in zip(sizes, keeps, strict=True)]
    cells = np.broadcast_to(np.arange(math.prod(shape)).reshape(shape), sizes).ravel()
    matrix = np.eye(math.prod(shape))[cells]
    matrix.flags.writeable = False
    return matrix


def times(rows: Weights, matrix: Weights) -> Weights:
    """Multiply by a small matrix, in a batch of BLAS calls."""
    length, width = matrix.shape
    height = max(1, min(_CALL // length, _PRODUCTS // (length * width)))
    batches = len(rows) // height
    split = batches * height
    result = np.empty((len(rows), width))
    if batches:
        whole = result[:split].reshape(batches, height, width)
        np.matmul(rows[:split].reshape(batches, height, length), matrix, out=whole)
    if split < len(rows):
        np.matmul(rows[split:], matrix, out=result[split:])
    return result


def merging(shape: Sequence[int], place: int, groups: Groups, count: int) -> Callable[[Weights], Weights]:
    """Return a function that sums the cells of each group along one axis, for arrays of one shape.

    >>> merging((2, 3, 2), 1, np.array([0, 1, 1]), 2)(np.arange(12.0).reshape(2, 3, 2)).tolist()
    [[[0.0, 1.0], [6.0, 8.0]], [[6.0, 7.0], [18.0, 20.0]]]
    """
    if _is_small(groups, count):
        return _along(shape, place, np.eye(count)[groups])
    order, starts = in_groups(groups, count)
    return partial(reduced, place=place, order=order, starts=starts, reduce=np.add)


def looking_up(shape: Sequence[int], place: int, groups: Groups, count: int) -> Callable[[Weights], Weights]:
    """Return a function that gives each cell along one axis the value of its group, for arrays of one shape.

    >>> looking_up((2, 2), 1, np.array([0, 1, 1]), 2)(np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[1.0, 2.0, 2.0], [3.0, 4.0, 4.0]]
    """
    if place == len(shape) - 1 and _is_small(groups, count):  # elsewhere, `np.take` copies runs
        return _along(shape, place, np.eye(count)[groups].T)
    return partial(np.take, indices=groups, axis=place)


def _is_small(groups: Groups, count: int) -> bool:
    """Return whether a product with zeros and ones takes less time than to sort the cells, or to look each up."""
    return count <= _FEW and len(groups) * count <= _CALL


def in_groups(groups: Groups, count: int) -> tuple[Groups | None, Groups]:
    """Return the cells in the order of their groups, None if they are already in order, and where each group starts."""
    order = np.argsort(groups, kind="stable")
    starts = np.searchsorted(groups[order], np.arange(count))
    return None if (groups[1:] >= groups[:-1]).all() else order, starts


def reduced(array: Weights, *, place: int, order: Groups | None, starts: Groups, reduce: np.ufunc) -> Weights:
    """Reduce the cells of each group along an axis to one."""
    ordered = array if order is None else np.take(array, order, axis=place)
    return np.asarray(reduce.reduceat(ordered, starts, axis=place))


def _along(shape: Sequence[int], place: int, matrix: Weights) -> Callable[[Weights], Weights]:
    """Return the product with a small matrix along one axis, whose cells are the rows of the matrix. A result is contiguous."""
    (length, width), after = matrix.shape, math.prod(shape[place + 1 :])
    result = (*shape[:place], width, *shape[place + 1 :])
    if after * length * after * width <= _WIDENED or after == 1:
        widened = np.asarray(np.kron(matrix, np.eye(after)), np.float64)
        return partial(_rows_multiplied, shape=(-1, length * after), matrix=widened, result=result)
    columns = max(1, (_CALL // length if width == 1 else _PRODUCTS // (length * width)))
    matrix = np.ascontiguousarray(matrix.T)
    return partial(_stack_multiplied, shape=(-1, length, after), matrix=matrix, columns=columns, result=result)


def _rows_multiplied(array: Weights, *, shape: tuple[int, ...], matrix: Weights, result: tuple[int, ...]) -> Weights:
    return times(np.ascontiguousarray(array).reshape(shape), matrix).reshape(result)


def _stack_multiplied(
    array: Weights, *, shape: tuple[int, ...], matrix: Weights, columns: int, result: tuple[int, ...]
) -> Weights:
    """Multiply each matrix of a stack from the left, in parts of some columns."""
    stack = np.ascontiguousarray(array).reshape(shape)
    parts = [np.matmul(matrix, stack[..., at : at + columns]) for at in range(0, stack.shape[2], columns)]
    return (parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2)).reshape(result)


def multiplied(
    left: tuple[Weights, tuple[int, ...]], right: tuple[Weights, tuple[int, ...]], *, keep: Container[int]
) -> tuple[Weights, tuple[int, ...]]:
    """Multiply two arrays whose dimensions have labels, as a batch of matrix products. Sum out a label of both that is not kept.

    Return the product and its labels: first those of both arrays, then the others of the left one, and of the right one.

    >>> multiplied((np.ones((2, 3)), (7, 8)), (np.ones((3, 4)), (8, 9)), keep={7, 9})[0].tolist()
    [[3.0, 3.0, 3.0, 3.0], [3.0, 3.0, 3.0, 3.0]]
    """
    (a, over_a), (b, over_b) = left, right
    sizes = dict(zip(over_a + over_b, a.shape + b.shape, strict=True))
    batch = tuple(label for label in over_a if label in over_b and label in keep)
    summed = tuple(label for label in over_a if label in over_b and label not in keep)
    rows = tuple(label for label in over_a if label not in over_b)
    columns = tuple(label for label in over_b if label not in over_a)

    def stack(array: Weights, over: tuple[int, ...], *groups: tuple[int, ...]) -> Weights:
        sides = [math.prod(sizes[label] for label in group) for group in groups]
        return array.transpose([over.index(label) for label in sum(groups, ())]).reshape(sides)

    product = products(stack(a, over_a, batch, rows, summed), stack(b, over_b, batch, summed, columns))
    over = batch + rows + columns
    return product.reshape([sizes[label] for label in over]), over


def products(left: Weights, right: Weights) -> Weights:
    """Multiply two stacks of matrices, tile by tile, in BLAS calls too small to start threads.

    >>> products(np.ones((1, 200, 300)), np.ones((1, 300, 100))).sum().tolist()
    6000000.0
    """
    (stack, rows, summed), columns = left.shape, right.shape[2]
    if summed == 1:
        return left * right
    height, width = (math.ceil(size / math.ceil(size / _TILE)) for size in (rows, columns))  # of equal parts
    depth = (_CALL if 1 in (height, width) else _PRODUCTS) // (height * width)
    if rows <= height and columns <= width and summed <= depth:
        return np.asarray(np.matmul(left, right))
    result = np.zeros((stack, rows, columns))
    tiles = itertools.product(range(0, summed, depth), range(0, rows, height), range(0, columns, width))
    for start, row, column in tiles:
        result[:, row : row + height, column : column + width] += np.matmul(
            left[:, row : row + height, start : start + depth], right[:, start : start + depth, column : column + width]
        )
    return result
