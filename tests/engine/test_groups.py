"""Groups: as many devices as was promised stand behind each message, or the round is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.engine.test_respond import BODIES
from tests.worlds import changed, checkerboard, federation, phones
from veilrec.engine.fleet import Terms
from veilrec.errors import BadInput
from veilrec.models.fedmf import FedMF
from veilrec.rounds import Federation


def fed_of(**plan: Any) -> Federation:
    return federation(phones(checkerboard()), FedMF(24, dim=4), **plan)


@pytest.mark.parametrize(
    ("plan", "devices"),
    [
        ({"forwards": 3, "cohort": 2}, "2 devices"),
        ({"forwards": 25}, "24 devices"),
        ({"forwards": 5, "cohort": 5, "order": "deal"}, "4 devices"),  # 24 dealt in fives leave four
        ({"forwards": "all", "cohort": 0.01}, "1 device,"),
    ],
    ids=["cohort", "everybody", "dealt", "alone"],
)
def test_cohorts_that_are_too_small_are_refused_before_the_first_round(
    plan: dict[str, Any], devices: str
) -> None:
    with pytest.raises(BadInput, match=rf"^plan\.forwards: a round has {devices}.*; enlarge plan\.cohort"):
        fed_of(**plan)


def test_a_round_that_is_too_small_is_refused_by_the_fleet() -> None:
    fed = fed_of(forwards=3)
    state, few = fed.start(), torch.arange(2)
    with pytest.raises(BadInput, match=r"^plan\.forwards: a round has 2 devices, too few for a sum over 3"):
        fed.fleet.round(fed.letter(state, few), few, Terms(3))


@pytest.mark.parametrize("chunk", [1, 2, 5, 7, 24])
@pytest.mark.parametrize("body", [None, *BODIES])
def test_every_message_is_a_sum_over_as_many_or_more(body: str | None, chunk: int) -> None:
    """Also where a body folds a chunk as it goes: such a chunk is in one group."""
    fed = fed_of(forwards=5, chunk=chunk)
    fed = changed(fed, body=BODIES[body]) if body else fed
    groups = fed.fleet.round(fed.letter(fed.start(), fed.able), fed.able, Terms(5)).groups
    assert sum(groups) == 24
    assert min(groups) >= 5
    assert len(groups) > 1 or (body == "folding" and chunk == 24)
