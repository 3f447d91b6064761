"""A plan that cannot be right is refused by name; the rest says what it means."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from veilrec.base.plan import Plan
from veilrec.errors import BadInput


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            (name, value)
            for name in ("rounds", "epochs", "batch", "evaluate_every", "workers")
            for value in (0, -1)
        ),
        *((name, -1) for name in ("negatives", "patience", "chunk")),
        *(("cohort", value) for value in (0.0, -0.1, 1.01, float("nan"))),
        *(
            ("lr", value)
            for value in (-0.1, float("inf"), float("nan"), {"user": -1.0}, {"default": float("nan")})
        ),
    ],
)
def test_impossible_values_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(BadInput, match=rf"^plan\.{name}(\.\w+)?: .*; give"):
        Plan(**{name: value})


@pytest.mark.parametrize(
    "settings", [{}, {"negatives": 0}, {"lr": 0.0}, {"lr": {"user": 0.1}}, {"cohort": 1e-9}, {"chunk": 0}]
)
def test_possible_values_are_taken(settings: dict[str, Any]) -> None:
    plan = Plan(**settings)
    assert {name: getattr(plan, name) for name in settings} == settings


def test_a_pass_leaves_nobody_out() -> None:
    with pytest.raises(BadInput, match=r'^plan\.order: cohorts that are drawn anew .*; set it to "deal"'):
        Plan(passes=2, cohort=5)
    assert Plan(passes=2).last(24) == 2  # everybody in each round
    assert Plan(passes=2, cohort=5, order="deal").last(24) == 10


def test_the_smallest_cohort_is_what_dealing_leaves_over() -> None:
    assert [Plan(cohort=5, order="deal").smallest(n) for n in (24, 25, 3)] == [4, 5, 3]
    assert Plan(cohort=5).smallest(24) == 5


def test_what_follows_from_a_plan() -> None:
    assert Plan().dtype is torch.float32
    assert Plan(precision="float64").dtype is torch.float64
    stepper = Plan(optimiser="adam", lr={"user": 0.2}).stepper
    assert (stepper.kind, stepper.lr) == ("adam", {"user": 0.2})
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert Plan(chunk=5).chunk_on(cpu, 10) == Plan(chunk=5).chunk_on(cuda, 10) == 5
    small, large, huge = (Plan().chunk_on(cpu, events) for events in (20, 256, 2000))
    assert 1 < large == huge < small <= 256 < Plan().chunk_on(cuda, 20)
    assert Plan(batch=100_000).chunk_on(cpu, 100_000) == 1
    assert 1 < Plan(batch=4096).chunk_on(cuda, 2314) < 1024  # the longest logs of MovieLens-1M, padded
