"""The wanted accuracy of a question."""

import numpy as np
import pytest

from dpcore.errors import UsageError
from dpcore.session.questions import Within


@pytest.mark.parametrize("within", ["", "many", "-5", 0, -1, float("nan"), float("inf"), "0%", True, None, "5 rows"])
def test_an_accuracy_that_means_nothing_is_refused(within: object) -> None:
    with pytest.raises(UsageError, match="say how accurate"):
        Within.of(within)  # type: ignore[arg-type]


def test_a_share_is_of_each_number() -> None:
    assert Within.of("2.5%").half_widths(np.array([1000.0, 40.0])).tolist() == [25.0, 1.0]
    assert Within.of("30").half_widths(np.array([1000.0, 40.0])).tolist() == [30.0, 30.0]
