"""Requests: who asks, who is learned from, and what is refused."""

from __future__ import annotations

import pytest
import torch

from veilrec.eraser import Request
from veilrec.errors import BadInput

GENDER, AGE = torch.tensor([0, 1, -1, 1]), torch.tensor([2, -1, 0, 0])
ASKS = torch.tensor([True, True, True, False])
LENDS = torch.tensor([False, False, True, True])


def test_who_is_learned_from() -> None:
    assert Request({"gender": GENDER}).counts_in("gender").tolist() == [True, True, False, True]
    request = Request({"gender": GENDER}, asks=ASKS, lends=LENDS)
    assert request.counts_in("gender").tolist() == [False, False, False, True]
    assert request.counts_in("gender", aware=True).tolist() == [True, True, False, False]


def test_a_part_knows_its_own_users_and_all_classes() -> None:
    request = Request({"gender": GENDER, "age": AGE}, asks=ASKS, tags=torch.arange(4) + 50)
    part = request.of(torch.tensor([3, 1])).only(["age"])
    assert (part.users, part.count("age"), part.moves.tolist()) == (2, 3, [False, True])
    assert part.own_tags.tolist() == [53, 51]
    assert list(part.labels) == ["age"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"labels": {}}, "no attribute"),
        ({"labels": {"gender": GENDER, "age": AGE[:2]}}, "age has shape"),
        ({"labels": {"gender": GENDER}, "asks": ASKS[:3]}, "asks has shape"),
        ({"labels": {"gender": GENDER - 1}}, "no classes"),
        ({"labels": {"gender": GENDER.float()}}, "no classes"),
    ],
)
def test_what_cannot_be_meant_is_refused(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        Request(**wrong)  # type: ignore[arg-type]


def test_an_attribute_that_is_not_there_is_refused_with_the_nearest() -> None:
    with pytest.raises(BadInput, match='did you mean "gender"'):
        Request({"gender": GENDER}).only(["gneder"])
