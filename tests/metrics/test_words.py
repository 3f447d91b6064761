"""Numbers, intervals and findings in words: one way for runs, reports, comparisons and papers."""

from __future__ import annotations

import math
from typing import Any

import pytest

from veilrec.metrics.measures import Measure
from veilrec.metrics.sentences import About, both_ways, guessed, hidden, ranked, sentence, within, wrong_way
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


def attacked(**others: tuple[float, float, float]) -> dict[str, Any]:
    """What a result says where the verdict goes by logistic regression, and others did what they did."""
    scores = {"logistic": (0.52, 0.45, 0.59), **others}
    attackers = [
        {
            "name": f"updates/{name}",
            "reads": "updates",
            "family": name,
            "oracle": name == "oracle",
            "scores": {"auc": {"value": value, "low": low, "high": high}},
        }
        for name, (value, low, high) in scores.items()
    ]
    verdict = {"attacker": "updates/logistic", "families": list(scores), "leaning": "none"}
    return {"attackers": attackers, "verdict": verdict}


def hushed(*entries: dict[str, Any]) -> str:
    return sentence("gender", entries, "none", Measure(0.52, 0.45, 0.59), ())


def test_nothing_found_is_no_reassurance_where_somebody_else_did_better() -> None:
    """The verdict goes by the attacker whom validation chose, and stays; the others are told."""
    alone = "No attacker of {} families finds gender in the uploads: AUC 0.52 [0.45, 0.59], chance 0.50"
    weak = {"lda": (0.54, 0.47, 0.61), "floor": (0.9, 0.8, 1.0), "oracle": (0.9, 0.8, 1.0)}
    assert hushed(attacked(**weak)) == f"{alone.format(4)}."
    strong = attacked(mlp=(0.616, 0.544, 0.687), **weak)
    late = "; chosen after the fact, one in 20 would be by luck."
    assert hushed(strong) == f"{alone.format(5)}, though mlp was right more often than chance{late}"
    both = attacked(mlp=(0.6, 0.51, 0.7), qda=(0.6, 0.51, 0.7), knn=(0.4, 0.3, 0.49))
    said = "mlp and qda were right more often than chance and knn was wrong more often than chance"
    assert hushed(both) == f"{alone.format(4)}, though {said}{late}"
    many = attacked(**dict.fromkeys("abcde", (0.6, 0.51, 0.7)))
    assert ", though a, b, c and 2 more were right more often" in hushed(many)


def test_over_seeds_those_are_told_whose_mean_is_surely_off_chance() -> None:
    one, other = attacked(mlp=(0.7, 0.65, 0.75)), attacked(mlp=(0.5, 0.45, 0.55))
    assert "though" not in hushed(one, other)
    assert "though mlp was right more often" in hushed(one, one)


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
