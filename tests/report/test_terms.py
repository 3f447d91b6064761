"""No claim without its protocol, none about audits that were not made alike; badges do not flatter."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.report.results import measure, result, results
from tests.report.test_page import Words
from veilrec.metrics.arms import families
from veilrec.metrics.measures import Measure, combined_p
from veilrec.report import render
from veilrec.report.findings import claims, findings, rows_apart
from veilrec.report.frontier import frontier
from veilrec.report.leakage import by_attacker, touched
from veilrec.report.protocol import ledgers
from veilrec.report.verdicts import verdict
from veilrec.result import Result

Named = tuple[str, Result]


def changed(named: Named, change: Callable[[dict[str, Any]], Any]) -> Named:
    """A run whose audit was made in another way, under the same name."""
    privacy = copy.deepcopy(dict(named[1].privacy))
    change(privacy["veilrec"])
    return named[0], replace(named[1], privacy=privacy)


def read_parameters(audit: dict[str, Any]) -> None:
    for entry in audit["attributes"].values():
        for attacker in entry["attackers"]:
            attacker["reads"] = "parameters"


UNLIKE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "another rule of verdicts: verdict of before": lambda audit: audit.pop("rule"),
    "another known: 0.05; not 0.2": lambda audit: audit["threat"].update(known=0.05),
    "another grants: nothing; not which items": lambda audit: audit.update(grants=[]),
    "another seed of the audit: 7; not 0": lambda audit: audit.update(seed=7),
    "other attackers on gender: with parameters/": read_parameters,
}


@pytest.mark.parametrize("what", UNLIKE)
def test_audits_not_made_alike_are_not_compared(what: str) -> None:
    none, laplace = results(("none", "laplace"), seeds=1)
    (family,), _ = families([none, laplace])
    assert any("leaks less gender" in one.sentence for one in claims(family)["veilrec"])
    runs = [none, changed(laplace, UNLIKE[what])]
    (family,), _ = families(runs)
    assert claims(family)["veilrec"] == []
    said = rows_apart(family, "veilrec")
    assert said.startswith(what), said
    assert all(not drawing.figure["data"][0]["x"] for drawing in frontier(family).variants), "no frontier"
    words = Words(render(runs)).text
    assert f"not compared: {what}" in words
    assert "leaks less" not in words
    assert "leaks more" not in words


def test_another_split_is_another_part() -> None:
    none, (name, laplace) = results(("none", "laplace"), seeds=1)
    apart = {**laplace.settings, "data": {**laplace.settings["data"], "split_seed": 1}}
    groups, _ = families([none, (name, replace(laplace, settings=apart))])
    assert len(groups) == 2
    fewer = replace(laplace, utility=replace(laplace.utility, users=12))
    assert len(families([none, (name, fewer)])[0]) == 2


def two_audits(seeds: int) -> list[Named]:
    """Each run audited by our own protocol, and by an oracle with nothing granted."""
    return [
        (
            name,
            replace(
                one,
                privacy={
                    **one.privacy,
                    "pard": {**one.privacy["veilrec"], "grants": [], "oracle": True},
                },
            ),
        )
        for name, one in results(("none",), seeds)
    ]


@pytest.mark.parametrize("seeds", [1, 3])
def test_every_finding_says_under_which_protocol(seeds: int) -> None:
    (family,), _ = families(two_audits(seeds))
    found = {one.terms.audit: str(one.terms) for one in findings(family)}
    granted = "granted: which items each user touched in training"
    assert found == {
        "veilrec": f"Audit veilrec; {granted}; chosen without the truth",
        "pard": "Audit pard; nothing granted; oracle: chosen with the truth in hand",
    }
    words = Words(render(two_audits(seeds))).text
    for said in found.values():
        assert words.count(said) >= 5, "each of four findings, and the table of verdicts"
    lead = words[words.index("Mean over seeds with") : words.index("Those that leak most stand on top")]
    assert "without the truth" not in lead, "it would stand above an oracle too"


def of_gradients(audit: dict[str, Any]) -> None:
    for entry in audit["attributes"].values():
        for attacker in entry["attackers"]:
            attacker["family"] = "gradient"


def test_where_nobody_learns_the_truth_may_have_chosen() -> None:
    (named,) = results(("none",), seeds=1)
    (family,), _ = families([changed(named, of_gradients)])
    said = {str(one.terms) for one in findings(family)}
    assert {one.rsplit("; ", 1)[1] for one in said} == {"nobody learns: the one who reads most"}


def test_sentences_over_seeds_name_what_was_granted() -> None:
    (family,), _ = families(two_audits(3))
    said = {one.terms.audit: one.sentence for one in findings(family) if one.title.startswith("gender")}
    grant = ", and was granted which items each user touched in training,"
    assert said["veilrec"].startswith(f"An attacker who sees the uploads{grant} guesses gender right")
    assert said["pard"].startswith("An attacker who sees the uploads guesses gender right")


def test_nothing_found_over_seeds_has_its_numbers() -> None:
    (family,), _ = families(results(("none", "heavy_noise")))
    said = [one.sentence for one in findings(family) if one.arm.collapsed and one.title == "age"]
    assert said[0].startswith(
        "No attacker of 4 families finds age in the uploads, with which items each user touched in training: "
        "AUC 0."
    )


def test_an_attacker_who_says_the_same_of_everybody_is_told_over_seeds() -> None:
    some = results(("none", "heavy_noise"))
    said = []
    for silent in (False, True):
        if silent:
            _, one = next(pair for pair in some if "heavy_noise" in pair[0])
            age = one.privacy["veilrec"]["attributes"]["age"]
            worst = next(each for each in age["attackers"] if each["name"] == age["verdict"]["attacker"])
            worst["scores"]["auc"] |= {
                "value": 0.5,
                "low": 0.5,
                "high": 0.5,
            }
        (family,), _ = families(some)
        said += [one.sentence for one in findings(family) if one.arm.collapsed and one.title == "age"]
    assert "has failed" not in said[0]
    assert (
        " seeds the attacker that this goes by says the same of everybody: it has failed, and tells nothing."
        in said[1]
    )


def test_a_collapsed_run_without_defence_says_nothing_about_one() -> None:
    broken = [(name, replace(one, utility=replace(one.utility, collapsed=True)))
              for name, one in results(("none", "laplace"), seeds=1)]  # fmt: skip
    (family,), _ = families(broken)
    for one in findings(family):
        assert ("says nothing about the defence" in one.sentence) == one.arm.defended


# ---- one rule for a leak that is shown


def test_a_large_p_shows_no_leak_in_verdicts_and_charts() -> None:
    def unsure(audit: dict[str, Any]) -> None:
        audit["attributes"]["gender"]["attackers"][0]["p"] = 0.2

    for p, hollow in ((None, False), (0.2, True)):
        run = results(("none",), seeds=1)[0]
        (family,), _ = families([run if p is None else changed(run, unsure)])
        found = verdict(family.arms[0], "veilrec", "gender")
        assert found is not None
        assert (found.leaning == "none") == hollow
        drawn = by_attacker(family).variants[0].figure["data"][-1]["marker"]["symbol"]
        assert drawn[1].endswith("-open") == hollow, "the first is for the legend"


def test_p_of_several_seeds() -> None:
    assert combined_p([]) is None
    assert combined_p([0.3]) == 0.3
    assert combined_p([0.001, 0.01, 0.9]) == pytest.approx(0.02)
    assert combined_p([0.8, 0.9]) == 1.0
    assert Measure(0.8, 0.7, 0.9, p=0.05).leaning(0.5) == "none"
    assert Measure(0.8, 0.7, 0.9, p=0.049).leaning(0.5) == "above"


def test_membership_below_chance_is_turned_round() -> None:
    def mirror(audit: dict[str, Any]) -> None:
        audit["membership"]["rows"] = measure(0.07, 0.004)

    (family,), _ = families([changed(run, mirror) for run in results(("none",), seeds=2)])
    rows = {row[1]: row[2] for row in touched(family).tables[0][0].rows}
    assert rows["the row was sent or changed, turned round"].startswith("0.930 [")
    assert rows["how far the row moved"].startswith("0.710 [")


# ---- badges


def ledger_of(epsilon: float, rows: str = "all", posts: int = 0) -> tuple[str, list[str]]:
    run = result("laplace", 0)
    made = copy.deepcopy(dict(run.ledger))
    made["composed"]["epsilon"]["max"] = epsilon
    made["mechanisms"][0]["rows"] = rows
    made["notes"] = made["notes"] if rows == "touched" else []
    traffic = {**run.traffic, "by_kind": {"up": {"posts": posts}, "down": {}}}
    (family,), _ = families([("run", replace(run, ledger=made, traffic=traffic))])
    (found,) = ledgers(family)
    return found.kind, found.flags


def test_a_badge_does_not_flatter() -> None:
    large, rows, posts = (
        "ε accounted, too large to protect",
        "values only: touched rows in the clear",
        "posts in the clear",
    )
    assert ledger_of(3.0) == ("sure", ["formal guarantee"])
    assert ledger_of(20.0) == ("sure", ["formal guarantee"])
    assert ledger_of(537_600.0) == ("weak", [large])
    assert ledger_of(3.0, rows="touched") == ("weak", [rows])
    assert ledger_of(3.0, posts=10) == ("weak", [posts])
    assert ledger_of(537_600.0, "touched", 10) == ("weak", [large, rows, posts])
    words = Words(render(results(("laplace",), seeds=1))).text
    assert large in words
    assert "formal guarantee" not in words
