"""Features: Table 1 of APM against values worked out by hand, and what must never be in them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from veilrec.clients import Clients
from veilrec.engine.features import MANY, profile, with_features
from veilrec.interactions import Interactions


def log(ratings: list[list[float]], **rest: object) -> Interactions:
    """User k rates items 0, 1, 2, … with the k-th list, in that order."""
    user = torch.tensor([k for k, some in enumerate(ratings) for _ in some])
    item = torch.tensor([n for some in ratings for n in range(len(some))])
    rating = torch.tensor([r for some in ratings for r in some], dtype=torch.float32)
    names = [f"u{k}" for k in range(len(ratings))]
    items = [f"i{k}" for k in range(12)]
    time = torch.arange(len(user), dtype=torch.int64)
    return Interactions.build(user, item, names, items, rating=rating, time=time, **rest)


PEOPLE = {
    "attributes": {"gender": torch.tensor([0, 1, -1])},
    "classes": {"gender": ("female", "male")},
}


def columns(data: Interactions, *, private: bool = False) -> dict[str, list[float]]:
    values, names = profile(data, private=private)
    return {name: values[:, k].tolist() for k, name in enumerate(names)}


def amount(n: int) -> float:
    return 2 * math.log2(1 + n) / MANY - 1


def test_table_1_by_hand() -> None:
    found = columns(log([[1, 2, 5, 5], [3, 4, 4], []]))
    assert found["items"] == pytest.approx([amount(4), amount(3), amount(0)])
    assert found["number of 5"] == pytest.approx([amount(2), amount(0), amount(0)])
    assert found["share of 5"] == pytest.approx([0.5, 0, 0])
    assert found["share of low"] == pytest.approx([0.5, 0, 0])
    assert found["share of high"] == pytest.approx([0.5, 2 / 3, 0])
    entropy = [
        (0.25 * math.log(4) * 2 + 0.5 * math.log(2)),
        -(math.log(1 / 3) / 3 + 2 / 3 * math.log(2 / 3)),
        0,
    ]
    assert found["entropy"] == pytest.approx([value / math.log(5) for value in entropy], rel=1e-5)
    assert found["median"] == pytest.approx([(3.5 - 3) / 2, (4 - 3) / 2, 0])
    assert found["least"] == pytest.approx([-1, 0, 0])
    assert found["largest"] == pytest.approx([1, 0.5, 0])
    assert found["mean"] == pytest.approx([0.125, (11 / 3 - 3) / 2, 0])
    assert len(found) == 1 + 10 + 2 + 1 + 4


def test_private_features_are_the_attributes_themselves_and_only_where_asked() -> None:
    data = log([[1, 2], [3], [5]], **PEOPLE)
    assert not [name for name in columns(data) if "=" in name]
    found = columns(data, private=True)
    assert found["gender=female"] == [1, 0, 0]
    assert found["gender=male"] == [0, 1, 0]  # unknown is neither


def test_without_ratings_the_number_of_events_is_left() -> None:
    data = replace(log([[1, 2], [3]]), rating=None)
    assert list(columns(data)) == ["items"]


def test_a_scale_of_many_values_is_cut_into_five() -> None:
    data = log([[k / 2 for k in range(12)]])
    found = columns(data)
    assert found["share of fifth 1"] == pytest.approx([3 / 12])
    assert found["share of fifth 5"] == pytest.approx([3 / 12])


@given(st.lists(st.lists(st.integers(1, 5), max_size=12), min_size=1, max_size=6))
def test_features_lie_between_minus_one_and_one_and_know_nobody_else(ratings: list[list[int]]) -> None:
    whole = [[1.0, 2, 3, 4, 5], *([float(r) for r in some] for some in ratings)]  # fixes the scale
    values, _ = profile(log(whole), private=False)
    assert bool((values.abs() <= 1).all())
    alone, _ = profile(log([whole[0], whole[-1]]), private=False)
    assert torch.equal(values[-1], alone[-1])


def test_held_out_events_are_not_in_them() -> None:
    data = log([[1, 1, 1, 5, 5]])
    clients = with_features(Clients.phones(data.leave_one_out()), private=False)
    assert clients.log.features is not None
    found = dict(zip(clients.log.feature_names, clients.log.features[0].tolist(), strict=True))
    assert found["share of 1"] == 1.0  # the two fives are the validation and the test item


def test_features_of_the_data_stay() -> None:
    own = torch.ones(1, 3)
    data = replace(log([[1, 2, 3, 4]]), features=own, feature_names=("a", "b", "c"))
    clients = with_features(Clients.phones(data.leave_one_out()), private=True)
    assert clients.log.features is own
