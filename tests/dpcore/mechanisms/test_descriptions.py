"""Whom a mechanism protects is described completely, and read back as it was."""

import json

import pytest

from dpcore.errors import UsageError
from dpcore.mechanisms.descriptions import checked_protection, describe_protection, protection_in
from tests.contracts.mechanism_catalogue import PROTECTIONS, WEIGHTED


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_a_protection_survives_its_description(protection):
    read_back = protection_in(json.loads(json.dumps(describe_protection(protection))))
    assert read_back == checked_protection(protection) == protection
    assert read_back.sensitivity == protection.sensitivity


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((key, None) for key in ("unit", "rows_per_unit", "neighbours", "row_weight")),
        ("neighbours", "swap"),
        ("rows_per_unit", 0),
        ("rows_per_unit", True),
        ("row_weight", -1),
        ("weight", "person"),
        ("weight", 3),
    ],
)
def test_a_description_that_protects_nobody_is_refused(key, value):
    with pytest.raises(UsageError):
        protection_in({**describe_protection(WEIGHTED), key: value})
