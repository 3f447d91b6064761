"""Numbers, intervals and findings in words: one way for runs, reports, comparisons and papers."""

from __future__ import annotations

import math

import pytest

from veilrec.metrics.measures import Measure
from veilrec.metrics.sentences import About, both_ways, guessed, hidden, ranked, within, wrong_way
from veilrec.metrics.words import amount, bracketed, duration, epsilon, number, signed

KNOWN, BARE = Measure(-0.05, -0.1, 0.0), Measure(0.5)
GRANTED = About("gender", "the uploads", ["the user vectors"], "auc", Measure(0.3, 0.2, 0.4))
VALUE = About("years", "the user vectors", [], "spearman", KNOWN)


def test_a_number_has_a_real_minus_and_nothing_is_a_dash() -> None:
    assert [number(-0.05), number(None), number(math.nan), number(0.25, 1)] == ["−0.050", "–", "–", "0.2"]
    assert [signed(0.25, 2), signed(-0.25, 2), signed(None)] == ["+0.25", "−0.25", "–"]


def test_an_interval_stands_behind_its_number_where_there_is_one() -> None:
    assert [bracketed(one, 2) for one in (KNOWN, BARE, None)] == ["−0.05 [−0.10, 0.00]", "0.50", "–"]
    assert bracketed(KNOWN, 2, sign=True) == "−0.05 [−0.10, +0.00]"


@pytest.mark.parametrize(
    ("value", "delta", "told"),
    [
        (30.0, 0.0, "30"),
        (0.5, 1e-5, "0.5 (δ = 1e-05)"),
        (5382400.0, 0.0, "5,382,400"),
        (1234.5, 0.0, "1,234"),
        (None, 0.0, "–"),
        (math.nan, 1e-5, "–"),
    ],
)
def test_an_epsilon_has_four_digits_or_all_before_the_point(
    value: float | None, delta: float, told: str
) -> None:
    assert epsilon(value, delta) == told


def test_what_was_found_is_said_with_what_was_granted() -> None:
    who = "An attacker who sees the uploads, and was granted the user vectors,"
    assert wrong_way(GRANTED, ("female", "male")) == (
        f"{who} reads gender turned round: given a female and a male user, it takes the one for the other 70 "
        "times of 100 (AUC 0.30, chance 0.50), so that its answers, turned round, are right as often."
    )
    assert "given one of a class and one not, it takes" in wrong_way(GRANTED, ("a", "b", "c"))
    assert wrong_way(VALUE, ()).endswith(
        "reads years turned round: ranks users by it the wrong way round (rank correlation -0.05, chance 0), "
        "so that its order, turned round, is right."
    )
    assert both_ways(GRANTED, 2, 3) == (
        f"{who} reads gender, turned round in 2 of 3 seeds: AUC 0.30 [0.20, 0.40] once those are turned, "
        "chance 0.50."
    )
    assert guessed(GRANTED, 0.91, "male", 0.5).startswith(f"{who} guesses gender right for 91 of 100 users (")
    assert ranked(GRANTED, ("female", "male"), "male") == (  # no two shares that seem to contradict the leak
        f"{who} given a female and a male user, says which is which 30 times of 100 (chance: 50); "
        "to guess the gender of one user, always saying male serves as well."
    )
    assert within(VALUE, 3.04, 8.0).endswith("guesses years to within 3.0 on average; without looking: 8.0.")


def test_what_was_not_found_is_said_with_how_many_tried() -> None:
    assert hidden(VALUE, 1) == (
        "The only attacker does not find years in the user vectors: "
        "rank correlation -0.05 [-0.10, 0.00], chance 0."
    )
    assert hidden(GRANTED, 4, "More.") == (
        "No attacker of 4 families finds gender in the uploads, with the user vectors: "
        "AUC 0.30 [0.20, 0.40], chance 0.50. More."
    )


def test_amounts_for_people() -> None:
    assert [amount(n) for n in (0, 999, 1000, 12_345_678, 7e12)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "12.3 MB",
        "7.0 TB",
    ]
    assert [duration(s) for s in (0.04, 9.94, 42.4, 59.6, 185)] == [
        "0.0 s",
        "9.9 s",
        "42 s",
        "1 min 00 s",
        "3 min 05 s",
    ]
