"""The first screen: sentences that intervals decide, tiles, topics with severity and advice, the exposed."""

from __future__ import annotations

import copy
import shlex
from dataclasses import replace
from typing import Any

import pytest

from tests.report.results import measure, result, results
from tests.report.test_page import Words
from veilrec.metrics.arms import Family, families
from veilrec.metrics.measures import Measure
from veilrec.report import render
from veilrec.report.conclusion import conclusion, tiles
from veilrec.report.exposed import exposed, most_exposed
from veilrec.report.findings import claims
from veilrec.report.names import attacker_words, part_words
from veilrec.report.topics import HISTORY, severity, topics
from veilrec.result import Result

Named = tuple[str, Result]


def family_of(runs: list[Named]) -> Family:
    (family,), _ = families(runs)
    return family


def concluded(runs: list[Named]) -> list[str]:
    family = family_of(runs)
    return conclusion(family, claims(family))


def changed(run: Named, **changes: Any) -> Named:
    """A run whose audit says something else."""
    privacy = copy.deepcopy(dict(run[1].privacy))
    privacy["veilrec"] |= changes
    return run[0], replace(run[1], privacy=privacy)


def test_a_defence_that_hides_everything_at_a_price_is_told_so() -> None:
    """0.312 of usefulness without, 0.24 with: 0.07 apart, told apart by three seeds of the same users."""
    quiet = [
        (name, replace(quieter(name, seed), settings=result("laplace", seed).settings))
        for seed, (name, _) in enumerate(results(("laplace",)))
    ]
    first, second, third = concluded([*results(("none",)), *quiet])
    assert first.startswith(
        "Without a defence an attacker finds out gender, age, occupation and years (AUC up to 0."
    )
    assert first.endswith(f", and {HISTORY} (AUC 0.970).")
    assert second.startswith("Laplace costs 0.0")
    assert "of ndcg@10 and hides all four attributes." in second
    assert third == f"It does not hide {HISTORY} (AUC 0.970)."


def quieter(name: str, seed: int) -> Result:
    """What heavy noise leaks, by a model that is still above popularity."""
    found = result("heavy_noise", seed)
    test = {metric: value * 0.24 / 0.171 for metric, value in found.utility.test.items()}
    again = {"ndcg@10": [value + 0.069 for value in found.utility_replicates["ndcg@10"]]}
    useful = replace(found.utility, test=test, collapsed=False)
    return replace(found, utility=useful, utility_replicates=again)


def test_what_is_not_shown_is_not_claimed() -> None:
    """A twin of the undefended run under another name: no cost, and nothing hidden."""
    twins = [
        (f"twin {seed}", replace(one, settings=result("laplace", seed).settings))
        for seed, (_, one) in enumerate(results(("none",)))
    ]
    _, second, third = concluded([*results(("none",)), *twins])
    assert second == "Laplace hides nothing that could be shown, at no cost that could be shown."
    assert third.startswith("It does not hide")


def test_what_collapsed_is_told_to_have_learned_nothing() -> None:
    runs = results(("none", "laplace", "heavy_noise"))
    told = concluded(runs)[1]
    assert "lowers what is found of" in told
    assert told.endswith("heavy noise has learned nothing: it is below popularity.")
    alone = concluded(results(("heavy_noise",)))
    assert alone[0].startswith("Under heavy noise the model has learned nothing that could leak")


def test_runs_that_cannot_be_paired_are_not_compared() -> None:
    none, laplace = results(("none", "laplace"), seeds=1)
    told = concluded([none, changed(laplace, grants=[])])
    assert told[1].startswith("What the defences change cannot be told")


def test_where_nothing_leaks_no_leak_is_told() -> None:
    (run,) = results(("none",), seeds=1)
    quiet = result("heavy_noise", 0)
    useful = replace(run[1], privacy=quiet.privacy)
    told = concluded([changed((run[0], useful), membership={"rows": measure(0.5, 0.01)})])
    assert told == ["Without a defence no attacker was shown to find gender, age, occupation or years."]


def test_a_page_without_attacks_says_that_nobody_looked() -> None:
    assert concluded([("x", replace(result(), privacy={}))]) == []


def test_tiles_have_the_worst_of_each_arm() -> None:
    family = family_of(results(("none", "laplace"), seeds=1))
    told = {tile.title: tile.rows for tile in tiles(family)}
    assert set(told) == {
        "Usefulness: ndcg@10",
        "Worst attribute",
        "Items a person touched",
        "ε over the run",
        "Sent by a device",
    }
    arm, value, beside, bad = told["Items a person touched"][0]
    assert (arm.label, value, beside, bad) == ("no defence", "0.970", "", "high")
    assert told["Worst attribute"][0][2] == "gender"
    assert told["Sent by a device"][0][1] == "264.3 kB"
    assert [value for _, value, _, _ in told["ε over the run"]] == ["none", "over 10⁶"]
    (low,) = [rows for rows in tiles(family_of(results(("heavy_noise",)))) if rows.title == "Worst attribute"]
    assert low.rows[0][3] == "", "what has learned nothing is not shown as hidden"


@pytest.mark.parametrize(
    ("value", "word"), [(0.95, "high"), (0.75, "high"), (0.74, "medium"), (0.6, "medium"), (0.59, "low")]
)
def test_severity_goes_by_the_way_from_chance(value: float, word: str) -> None:
    assert severity(Measure(value), 0.5, "above") == word
    assert severity(Measure(value), 0.5, "none") == "none"
    assert severity(Measure(2 * value - 1), 0.0, "above") == word, "a rank correlation as an AUC of its size"


def test_the_worst_leak_of_all_is_the_first_topic() -> None:
    family = family_of(results(("none", "laplace")))
    found = topics(family)
    assert [topic.title for topic in found][:2] == [HISTORY, "gender"]
    assert found[0].severity == "high"
    assert "97 times of 100" in found[0].lines[0].sentence
    assert {line.arm.label for line in found[0].lines} == {"no defence", "laplace"}
    words = Words(render(results(("none", "laplace")))).text
    assert words.index("What to try next.") < words.index("Verdicts Mean over seeds")


def test_advice_is_a_command_for_the_run_that_it_is_about() -> None:
    (topic,) = [one for one in topics(family_of(results(("none",), seeds=1))) if one.title == "gender"]
    words = shlex.split(topic.advice[1])
    assert words[:3] == ["veilrec", "run", "runs/none/seed=0/recipe.toml"]
    strange = [("runs/it's $(x)", one) for _, one in results(("none",), seeds=1)]
    (topic,) = [one for one in topics(family_of(strange)) if one.title == "gender"]
    assert shlex.split(topic.advice[1])[2] == "runs/it's $(x)/recipe.toml"
    (topic,) = [one for one in topics(family_of(results(("none", "laplace")))) if one.title == "gender"]
    assert topic.advice[0].startswith("laplace leaves least of it here")
    assert "--seed 3" in topic.advice[1]


def test_equal_digits_are_explained() -> None:
    none, laplace = results(("none", "laplace"), seeds=1)
    same = changed(laplace, attributes=none[1].privacy["veilrec"]["attributes"])
    told = {topic.title: topic.same for topic in topics(family_of([none, same]))}
    assert told["gender"].startswith("no defence and laplace have the same digits, which is no mistake")
    assert told[HISTORY] == ""
    assert not any(topic.same for topic in topics(family_of([none, laplace])))


def exposing(run: Named, share: float) -> Named:
    """A run that says of how many of each class an attacker is sure."""
    attributes = copy.deepcopy(run[1].privacy["veilrec"]["attributes"])
    for group in attributes["gender"]["groups"]:
        group["tpr_at_1"] = measure(share if group["group"] == "female" else 0.012, 0.005)
    return changed(run, attributes=attributes)


def test_who_is_most_exposed_is_named_with_the_number_of_people() -> None:
    none, laplace = results(("none", "laplace"), seeds=1)
    family = family_of([exposing(none, 0.2), exposing(laplace, 0.05)])
    table = exposed(family, "veilrec")
    assert table.head == ["people", "no defence", "laplace"]
    assert table.rows[0] == ["gender: female", "55 of 273 [52, 57]", "14 of 273 [11, 16]"]
    told = most_exposed(family, "veilrec")
    assert told.startswith(
        "Most exposed are people of gender: female (no defence): an attacker is sure of 55 of 273."
    )
    assert told.endswith("chance would give 3.")
    assert exposed(family_of([none, laplace]), "veilrec").rows == []
    assert most_exposed(family_of([exposing(none, 0.012)]), "veilrec") == ""


@pytest.mark.parametrize(
    ("name", "sends", "words"),
    [
        ("updates/logistic", "gradients", "gradients, logistic regression"),
        ("updates/mlp-pard", "weights", "changes, perceptron as in pard"),
        ("profile/knn", "gradients", "history read from the upload, nearest neighbours"),
        ("iDLG", "gradients", "iDLG"),
        ("my/own", "gradients", "my/own"),
    ],
)
def test_attackers_are_called_by_words(name: str, sends: str, words: str) -> None:
    assert attacker_words(name, sends) == words


def test_parts_are_called_by_words() -> None:
    assert [part_words(name) for name in ("item", "item, rows picked", "mlp_item")] == [
        "item vectors",
        "item vectors, rows picked",
        "mlp item",
    ]
