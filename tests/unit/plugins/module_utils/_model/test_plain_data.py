"""Tests for the conversion of dataclasses to plain data and back, and for damaged data."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.plain_data import (
    DataError,
    from_plain,
    to_plain,
)


@dataclasses.dataclass(frozen=True)
class Wheel:
    size: int
    maker: str | None = None


@dataclasses.dataclass(frozen=True)
class Car:
    name: str
    price: float
    sold: bool
    wheels: tuple[Wheel, ...]
    doors: frozenset[int]
    parts: dict[str, Wheel | None]
    owners: dict[int, str]
    spare: Wheel | None
    notes: dict[str, Any]
    years: tuple[int, ...] = ()
    paid: dict[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reply:
    error: str = ""
    found: tuple[str, ...]


class Text(str):
    """A subclass of ``str``, as used by Ansible."""

    __slots__ = ()


WHEEL = Wheel(16)
CAR = Car("a", 1.5, True, (WHEEL, Wheel(17, "x")), frozenset({4, 2}), {"b": WHEEL, "c": None}, {1996: "d"}, None, {})
DATA: dict[str, Any] = {
    "name": "a",
    "price": 1.5,
    "sold": True,
    "wheels": [{"size": 16, "maker": None}, {"size": 17, "maker": "x"}],
    "doors": [2, 4],
    "parts": {"b": {"size": 16, "maker": None}, "c": None},
    "owners": {"1996": "d"},
    "spare": None,
    "notes": {},
    "years": [],
    "paid": {},
}


def car(**changes: Any) -> Car:
    return from_plain(Car, {**DATA, **changes}, "the car is damaged")


def test_dataclass_survives_json() -> None:
    assert to_plain(CAR) == DATA
    assert list(to_plain(CAR)) == [field.name for field in dataclasses.fields(Car)]
    assert from_plain(Car, json.loads(json.dumps(to_plain(CAR))), "the car") == CAR


def test_parsed_value_does_not_share_data() -> None:
    paid, notes = {"b": 1}, {"c": 2}
    parsed = car(paid=paid, notes=notes)
    paid["b"] = notes["c"] = 3
    assert (parsed.paid, parsed.notes) == ({"b": 1}, {"c": 2})


def test_field_with_a_default_may_be_missing() -> None:
    data = {key: value for key, value in DATA.items() if key not in ("years", "paid")}
    assert from_plain(Car, {**data, "wheels": [{"size": 16}, {"size": 17, "maker": "x"}]}, "the car") == CAR


def test_fields_that_have_names_only_are_read() -> None:
    assert from_plain(Reply, {"found": ["a"], "error": "none"}, "the reply") == Reply(error="none", found=("a",))


def test_whole_number_is_accepted_as_float() -> None:
    assert repr(car(price=2).price) == "2.0"


def test_text_of_a_subclass_is_accepted_unchanged() -> None:
    name = Text("a")
    parsed = car(name=name, spare={"size": 16, "maker": Text("x")}, owners={Text("7"): Text("d")})
    assert parsed.name is name
    assert (parsed.spare, parsed.owners) == (Wheel(16, "x"), {7: "d"})


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"name": 1}, "name must be text"),
        ({"name": None}, "name must be text"),
        ({"price": "1.5"}, "price must be a number"),
        ({"price": True}, "price must be a number"),
        ({"price": float("nan")}, "price must be a number"),
        ({"price": float("inf")}, "price must be a number"),
        ({"price": 10**400}, "price must be a number"),
        ({"sold": 1}, "sold must be true or false"),
        ({"wheels": {"0": 1}}, "wheels must be a list"),
        ({"wheels": [{"size": 1}, None]}, "wheels[1] must be a mapping"),
        ({"wheels": [{"size": 1}, {}]}, "wheels[1].size is missing"),
        ({"wheels": [{"size": 1, "colour": "red"}]}, "wheels[0].colour is not known"),
        ({"doors": [1, True]}, "doors[1] must be a whole number"),
        ({"doors": "12"}, "doors must be a list"),
        ({"parts": {"b": {"size": 1.5}}}, "parts.b.size must be a whole number"),
        ({"parts": {"b.c": []}}, "parts['b.c'] must be a mapping"),
        ({"parts": {"\n" * 99: 1}}, f"parts[{chr(10) * 40!r}] must be a mapping"),
        ({"parts": []}, "parts must be a mapping"),
        ({"doors": [1, 1 << 63]}, "doors[1] must be a whole number of 64 bits"),
        ({"doors": [1, -(1 << 63) - 1]}, "doors[1] must be a whole number of 64 bits"),
        ({"parts": {"b": {"size": 10**400}}}, "parts.b.size must be a whole number of 64 bits"),
        ({"paid": {"b": 1 << 64}}, "paid.b must be a whole number of 64 bits"),
        ({"owners": {"x": "d"}}, "owners must have whole numbers of 64 bits as keys"),
        ({"owners": {str(10**400): "d"}}, "owners must have whole numbers of 64 bits as keys"),
        ({"owners": {"1": 2}}, "owners['1'] must be text"),
        ({"spare": {"size": 1, "maker": 3}}, "spare.maker must be text"),
        ({"notes": None}, "notes must be a mapping"),
        ({"years": [1, "2"]}, "years[1] must be a whole number"),
        ({"paid": {"b": None}}, "paid.b must be a whole number"),
        ({"horn": 1}, "horn is not known"),
    ],
    ids=repr,
)
def test_data_error_contains_the_field_and_not_the_value(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(DataError) as raised:
        car(**changes)
    assert str(raised.value) == f"the car is damaged: {problem}"


@pytest.mark.parametrize("name", ["name", "wheels", "notes"])
def test_field_without_a_default_is_required(name: str) -> None:
    with pytest.raises(DataError, match=f"^the car: {name} is missing$"):
        from_plain(Car, {key: value for key, value in DATA.items() if key != name}, "the car")


@pytest.mark.parametrize("data", [None, [], "car", 1])
def test_dataclass_is_parsed_only_from_a_mapping(data: object) -> None:
    with pytest.raises(DataError, match=r"^the car: the data must be a mapping$"):
        from_plain(Car, data, "the car")
