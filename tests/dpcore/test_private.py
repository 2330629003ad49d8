"""A private value shows nothing of itself and goes nowhere."""

import copy
import logging
import operator
import pickle
import weakref
from collections.abc import Callable
from dataclasses import is_dataclass

import numpy as np
import pytest

from dpcore.audit.made_up import ROW
from dpcore.private import Private
from dpcore.tables.histogram import LocalHistogram
from dpcore.tables.ingest.records import Records

CANARY = 199


def records() -> Records:
    return Records.of([np.full(CANARY, CANARY, dtype=np.uint8)], weights=None, protection=ROW)


def histogram() -> LocalHistogram:
    codes, counts = [np.array([CANARY], dtype=np.uint8)], np.array([CANARY])
    return LocalHistogram.of(codes=codes, counts=counts, shape=(CANARY + 1,), protection=ROW)


PRIVATE_VALUES = [pytest.param(records, id="records"), pytest.param(histogram, id="histogram")]


@pytest.mark.parametrize("make", PRIVATE_VALUES)
@pytest.mark.parametrize("show", [repr, str, "{}".format, "{:>40}".format, ascii, lambda value: f"{[value]!r}"])
def test_every_text_of_it_is_the_same_whatever_is_in_it(
    make: Callable[[], Private], show: Callable[[object], str]
) -> None:
    text = show(make())
    assert f"<{type(make()).__name__}: private, not shown>" in text
    assert str(CANARY) not in text


REFUSED = {
    "pickle": pickle.dumps,
    "old pickle": lambda value: pickle.dumps(value, protocol=0),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "reduce": lambda value: value.__reduce__(),
    "state": lambda value: value.__getstate__(),
    "hash": hash,
    "set": lambda value: {value},
    "equal": lambda value: operator.eq(value, value),
    "unequal": lambda value: operator.ne(value, 1),
    "less": lambda value: operator.lt(value, value),
    "at most": lambda value: operator.le(value, value),
    "greater": lambda value: operator.gt(value, value),
    "at least": lambda value: operator.ge(value, value),
    "len": len,
    "bool": bool,
    "list": list,
    "in": lambda value: CANARY in value,
    "array": np.asarray,
}


@pytest.mark.parametrize("make", PRIVATE_VALUES)
@pytest.mark.parametrize("what", REFUSED)
def test_it_refuses_to_be(make: Callable[[], Private], what: str) -> None:
    with pytest.raises(TypeError, match="is private: it cannot be") as refusal:
        REFUSED[what](make())
    assert str(CANARY) not in str(refusal.value)


@pytest.mark.parametrize("make", PRIVATE_VALUES)
def test_it_has_no_fields_that_a_library_would_walk(make: Callable[[], Private]) -> None:
    value = make()
    assert not is_dataclass(value)
    assert not hasattr(value, "__dict__")
    with pytest.raises(TypeError):
        vars(value)
    with pytest.raises(TypeError):
        value[0]  # type: ignore[index]


@pytest.mark.parametrize("make", PRIVATE_VALUES)
def test_it_can_be_referred_to_weakly_and_compared_by_identity(make: Callable[[], Private]) -> None:
    value = make()
    assert weakref.ref(value)() is value


def test_logging_it_gives_its_name_only(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("dpcore").warning("read %s", histogram())
    assert caplog.messages == ["read <LocalHistogram: private, not shown>"]
