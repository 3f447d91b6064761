"""Numbers over seeds and users by hand, and claims that the interval bears out or does not."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.reproduction.tiny import attacked, ranked, shelved, write
from tests.results import ends, result, spread
from veilrec.metrics.epsilons import epsilon_of
from veilrec.metrics.leaks import RULE
from veilrec.metrics.measures import Measure, together
from veilrec.reproduction.cells import FinishedRuns
from veilrec.reproduction.claims import CheckedClaim, check, sides
from veilrec.reproduction.contents import Claim, Named
from veilrec.reproduction.numbers import WORST, Quantity, floors_of, minus, rests_on_before, value_of
from veilrec.reproduction.paper import Paper
from veilrec.reproduction.results import marks
from veilrec.reproduction.sheets import sheets_of
from veilrec.reproduction.tables import page_of
from veilrec.reproduction.words import below

KNN = Quantity("macro_f1", "gender", "custom", "updates/knn")
GENDER = {"attribute": "gender"}
T2 = 4.303  # Student's t of three seeds


def test_without_resamples_the_ends_of_the_interval_stand_in() -> None:
    """Users: ± 0.02; seeds: 0.5, 0.6, 0.7, so sd 0.1."""
    found = together([Measure(v, v - 0.02, v + 0.02) for v in (0.5, 0.6, 0.7)], "auc")
    half = math.hypot(0.02, T2 * 0.1 / math.sqrt(3))
    assert ends(found) == pytest.approx((0.6, 0.6 - half, 0.6 + half))


def test_an_interval_of_shares_ends_at_nought_and_one() -> None:
    assert ends(together([Measure(0.1, 0.1, 0.1), Measure(0.9, 0.9, 0.9)], "auc")) == (0.5, 0.0, 1.0)


def test_unpaired_differences_add_both_doubts() -> None:
    one = {s: Measure(0.6, 0.57, 0.63) for s in range(3)}
    other = {s: Measure(0.5, 0.46, 0.54) for s in range(3)}
    assert ends(minus(one, other)) == pytest.approx((0.1, 0.1 - 0.05, 0.1 + 0.05))  # 3, 4, 5


def test_resamples_of_the_same_users_cancel() -> None:
    one = {0: Measure(0.6, 0.5, 0.7, np.asarray(spread(0.6, 0.05)))}
    other = {0: Measure(0.5, 0.4, 0.6, np.asarray(spread(0.5, 0.05)))}
    assert ends(minus(one, other)) == pytest.approx((0.1, 0.1, 0.1))


def test_only_equal_seeds_are_paired() -> None:
    value = Measure(0.5, 0.4, 0.6)
    assert minus({0: value}, {1: value}) is None


def test_a_value_is_found_where_results_keep_it() -> None:
    run = attacked(0, 0.6)
    assert value_of(run, KNN) == Measure(0.6, 0.58, 0.62)
    assert value_of(run, KNN._replace(attacker="", part="item")) == Measure(0.6, 0.58, 0.62)
    assert value_of(run, KNN._replace(attacker="updates/svc")) is None
    assert value_of(run, KNN._replace(audit="apm")) is None
    kept = value_of(attacked(0, 0.6, replicates={"macro_f1": [0.5, 0.7]}), KNN)
    assert kept is not None
    assert kept.replicates.tolist() == [0.5, 0.7]
    assert floors_of([run], KNN) == {"majority": 0.42, "uniform": 0.5}


def test_the_worst_is_whom_the_verdict_goes_by() -> None:
    run, worst = attacked(0, 0.6), KNN._replace(attacker=WORST)
    assert value_of(run, worst) == value_of(run, KNN)
    gender = run.privacy["custom"]["attributes"]["gender"]
    gender["attackers"].insert(0, {"name": "updates/svc", "scores": {"macro_f1": {"value": 0.9}}})
    assert value_of(run, worst) == value_of(run, KNN)
    gender["verdict"]["attacker"] = "updates/svc"
    assert value_of(run, worst) == Measure(0.9, 0.9, 0.9)
    gender["verdict"] = None
    assert value_of(run, worst) is None


def test_of_those_who_read_gradients_the_worst_is_who_reads_most() -> None:
    """Whatever the verdict of an earlier run says; oracles have no say where there is somebody else."""
    run, worst = attacked(0, 0.6), KNN._replace(attacker=WORST)
    gender = run.privacy["custom"]["attributes"]["gender"]
    reads = {"DLG": (0.7, 0.66), "iDLG": (0.1, 0.12), "one_hot": (1.0, 0.99)}
    gender["attackers"] = [
        {
            "name": name,
            "family": "gradient",
            "oracle": name == "one_hot",
            "scores": {"auc": {"value": auc}, "macro_f1": {"value": f1}},
        }
        for name, (auc, f1) in reads.items()
    ]
    gender["verdict"]["attacker"] = "DLG"
    assert value_of(run, worst) == Measure(0.12, 0.12, 0.12)
    gender["attackers"][1]["scores"]["auc"]["value"] = None
    assert value_of(run, worst) == Measure(0.66, 0.66, 0.66)
    gender["attackers"].append({"name": "mlp", "family": "mlp", "scores": {"macro_f1": {"value": 0.5}}})
    gender["verdict"]["attacker"] = "mlp"
    assert value_of(run, worst) == Measure(0.5, 0.5, 0.5)


def test_what_rests_on_a_verdict_of_before_is_known() -> None:
    run, worst = attacked(0, 0.6), KNN._replace(attacker=WORST)
    assert run.privacy["custom"].pop("rule") == RULE
    assert rests_on_before(run, worst)
    assert not rests_on_before(run, KNN), "an attacker by name was chosen by no verdict"
    run.privacy["custom"]["rule"] = RULE
    assert not rests_on_before(run, worst)
    del run.privacy["custom"]["rule"]
    for one in run.privacy["custom"]["attributes"]["gender"]["attackers"]:
        one["family"] = "gradient"
    assert not rests_on_before(run, worst), "of those who only read, the rule was the same"


def test_the_worst_of_all_is_told_turned_round_where_it_is_surely_below_chance() -> None:
    run, worst = attacked(0, 0.6), KNN._replace(attacker=WORST, score="auc")
    gender = run.privacy["custom"]["attributes"]["gender"]
    gender["attackers"][0]["scores"]["auc"] = {"value": 0.2, "low": 0.15, "high": 0.26}
    gender["verdict"]["leaning"] = "none"
    assert value_of(run, worst) == Measure(0.2, 0.15, 0.26)
    gender["verdict"]["leaning"] = "below"
    assert value_of(run, worst) == Measure(0.8, 0.74, 0.85, turned=True)
    assert value_of(run, worst._replace(attacker=KNN.attacker)) == Measure(0.2, 0.15, 0.26)


def test_a_guarantee_is_told_in_three_numbers() -> None:
    ledger = {
        "guarantee": True,
        "mechanisms": [{"epsilon_per_coordinate": 30.0}, {"epsilon_per_coordinate": 60.0}],
        "per_upload": {"epsilon": 12345.6},
        "composed": {"epsilon": {"max": 2e6}},
    }
    assert epsilon_of([replace(result(), ledger=ledger)]).cells == ["30 to 60", "12,346", "2,000,000"]
    assert epsilon_of([result()]).cells == ["no noise declared", "–", "–"]
    bare = replace(result(), ledger={**ledger, "guarantee": False})
    assert epsilon_of([bare]).cells == ["30 to 60, not on all that leaves", "none", "none"]


def test_an_epsilon_that_is_not_pure_has_its_delta() -> None:
    gauss = {
        "guarantee": True,
        "mechanisms": [{"kind": "gaussian", "epsilon_per_coordinate": 0.5}],
        "per_upload": {"epsilon": 100.0, "delta": 1e-5},
        "composed": {"epsilon": {"max": 200.0}, "delta": 1e-5},
    }
    told = [f"{epsilon} (δ = 1e-05)" for epsilon in ("0.5", "100", "200")]
    assert epsilon_of([replace(result(), ledger=gauss)]).cells == told
    laplace = {**gauss, "mechanisms": [{"kind": "laplace", "epsilon_per_coordinate": 0.5}]}
    assert epsilon_of([replace(result(), ledger=laplace)]).cells == ["0.5", *told[1:]]  # only sums need a δ
    unused = {"kind": "gaussian", "epsilon_per_coordinate": 9.0, "counted": False}
    both = {**laplace, "mechanisms": [*laplace["mechanisms"], unused]}  # type: ignore[misc]
    assert epsilon_of([replace(result(), ledger=both)]).cells[0] == "0.5"


# ---- claims


@pytest.fixture
def world(tmp_path: Path) -> tuple[Paper, Path]:
    """Plain leaks 0.60, noisy 0.50, on three seeds."""
    return Paper.load(str(write(tmp_path / "tiny"))), shelved(tmp_path / "out")


def checked(world: tuple[Paper, Path], table: str = "table1", **claim: str) -> CheckedClaim:
    paper, out = world
    return check(paper, paper.tables[table], Claim(**claim), "synthetic", FinishedRuns(out, 3))


def test_a_claim_that_holds(world: tuple[Paper, Path]) -> None:
    found = checked(world, less="noisy", than="plain", attribute="gender")
    assert found.verdict == "yes"
    assert found.seeds == 3
    half = 0.02 * math.sqrt(2)
    assert ends(found.difference)[1:] == pytest.approx((-0.1 - half, -0.1 + half))
    said, numbers = found.sentence.split(": yes, ")
    assert said == "Noisy leaks less gender than Plain (macro-F1, ζ = 0.3, KNN)"
    assert numbers == "0.501 against 0.601, −0.100 [−0.128, −0.072]."


def test_the_reverse_does_not_hold(world: tuple[Paper, Path]) -> None:
    assert checked(world, more="noisy", than="plain", attribute="gender").verdict == "no"
    assert checked(world, alike="noisy", than="plain", attribute="gender").verdict == "no"


def test_what_is_the_same_is_not_told_apart(world: tuple[Paper, Path]) -> None:
    found = checked(world, more="noisy", than="plain", by="hr@10")
    assert found.verdict == "not told apart"
    assert found.sentence.startswith("Noisy recommends better than Plain (Hit@10): not told apart, 0.300")


def test_floors_and_popularity_are_sides_too(world: tuple[Paper, Path]) -> None:
    blind = checked(world, more="plain", than="floor", attribute="gender")
    assert blind.verdict == "yes"
    assert "than the best blind guess" in blind.sentence
    assert "0.601 against 0.500" in blind.sentence
    assert checked(world, more="plain", than="popularity", by="hr@10").verdict == "yes"


def test_a_part_against_a_part(world: tuple[Paper, Path]) -> None:
    found = checked(world, more="plain", part="item", than="noisy", than_part="item", attribute="gender")
    assert found.sentence.startswith(
        "Plain leaks more gender in its items than Noisy in its items (macro-F1, ζ = 0.3): yes"
    )
    same = checked(world, alike="plain", part="item", than="plain", than_part="item", attribute="gender")
    assert same.sentence.startswith("Plain leaks gender in its items like in its items (macro-F1, ζ = 0.3)")


def test_without_runs_nothing_can_be_checked(tmp_path: Path) -> None:
    empty = Paper.load(str(write(tmp_path / "tiny"))), tmp_path / "out"
    found = checked(empty, less="noisy", than="plain", attribute="gender")
    assert found.verdict == "cannot be checked"
    assert found.sentence.endswith("there are no runs of Noisy.")


def test_runs_that_did_not_measure_it_are_not_called_missing(world: tuple[Paper, Path]) -> None:
    paper, out = world
    audits = {**paper.audits, "apm": Named("ζ = 0.1")}
    found = checked((replace(paper, audits=audits), out), more="plain", than="floor", **GENDER, audit="apm")
    assert found.verdict == "cannot be checked"
    assert found.sentence.endswith(
        "(macro-F1, ζ = 0.1, KNN): cannot be checked, Plain was not measured in these runs."
    )
    shutil.rmtree(out / "synthetic" / "noisy")
    assert checked(world, less="plain", than="noisy", **GENDER).sentence.endswith(
        "there are no runs of Noisy."
    )


def test_what_a_claim_does_not_name_is_the_first_of_its_table(world: tuple[Paper, Path]) -> None:
    paper, out = world
    several = replace(
        paper,
        audits={"apm": Named("ζ = 0.1"), **paper.audits},
        attackers={"updates/svc": Named("SVC"), **paper.attackers},
    )
    assert checked((several, out), less="noisy", than="plain", **GENDER).verdict == "yes"
    claim = Claim(less="noisy", than="plain", attribute="gender")
    assert sides(several, several.tables["table1"], claim) == (KNN, KNN)
    assert sides(several, several.tables["table2"], claim)[0] == KNN._replace(
        audit="apm", attacker="updates/svc"
    )


def test_an_attribute_may_have_a_score_of_its_own(world: tuple[Paper, Path]) -> None:
    paper, out = world
    own = replace(paper, attributes={"gender": Named("Gender", score="auc"), "age": Named("Age")})
    found = checked((own, out), less="noisy", than="plain", **GENDER)
    assert found.sentence.startswith("Noisy leaks less gender than Plain (AUC, ζ = 0.3, KNN)")
    table = own.tables["table1"]
    scores = [
        sides(own, table, Claim(less="noisy", than="plain", attribute=attribute, by=by))[0].score
        for attribute, by in (("gender", ""), ("gender", "micro_f1"), ("age", ""))
    ]
    assert scores == ["auc", "micro_f1", "macro_f1"]


def test_a_claim_by_another_metric_has_an_interval(world: tuple[Paper, Path]) -> None:
    """The same resamples on both sides cancel: what is left is the difference of 0.1."""
    for method, value in (("plain", 0.3), ("noisy", 0.2)):
        for seed in range(3):
            ranked(attacked(seed, 0.5), value).save(world[1] / "synthetic" / method / f"seed={seed}")
    found = checked(world, more="plain", than="noisy", by="ndcg@10")
    assert found.verdict == "yes"
    assert ends(found.difference) == pytest.approx((0.1, 0.1, 0.1))
    assert found.sentence.startswith("Plain recommends better than Noisy (NDCG@10): yes, 0.300 against 0.200")


def test_two_audits_of_one_method(world: tuple[Paper, Path]) -> None:
    """Who knows more users finds more: 0.70 in the other audit of the same runs."""
    paper, out = world
    for seed in range(3):
        one, more = attacked(seed, 0.6), attacked(seed, 0.7)
        both = {**one.privacy, "more": more.privacy["custom"]}
        replace(one, privacy=both).save(out / "synthetic" / "plain" / f"seed={seed}")
    told = replace(paper, audits={**paper.audits, "more": Named("ζ = 0.4")})
    found = checked((told, out), more="plain", than="plain", **GENDER, audit="more", than_audit="custom")
    assert found.verdict == "yes"
    blind = checked((told, out), more="plain", than="floor", **GENDER, audit="more")
    assert blind.sentence.startswith(
        "Plain leaks more gender than the best blind guess (macro-F1, ζ = 0.4, KNN): yes, 0.700 against 0.500"
    )
    assert found.sentence.startswith(
        "Plain leaks more gender at ζ = 0.4 than at ζ = 0.3 (macro-F1, KNN): yes, 0.700"
    )


def test_two_attackers_of_one_method(world: tuple[Paper, Path]) -> None:
    """SVC finds 0.70 in the same runs."""
    paper, out = world
    for seed in range(3):
        one, more = attacked(seed, 0.6), attacked(seed, 0.7)
        found = one.privacy["custom"]["attributes"]["gender"]["attackers"]
        found += [
            {**entry, "name": "updates/svc"}
            for entry in more.privacy["custom"]["attributes"]["gender"]["attackers"]
        ]
        one.save(out / "synthetic" / "plain" / f"seed={seed}")
    told = replace(paper, attackers={**paper.attackers, "updates/svc": Named("SVC")})
    two = {"attacker": "updates/svc", "than_attacker": "updates/knn"}
    found = checked((told, out), more="plain", than="plain", **GENDER, **two)
    said = "Plain leaks more gender to SVC than to KNN (macro-F1, ζ = 0.3): yes, 0.700 against 0.600"
    assert found.sentence.startswith(said)
    other = checked((told, out), more="plain", than="noisy", **GENDER, **two)
    assert other.sentence.startswith(
        "Plain leaks more gender to SVC than Noisy to KNN (macro-F1, ζ = 0.3): yes"
    )


def collapse(out: Path, method: str, runs: int) -> None:
    """The first runs of a method fall below popularity."""
    for seed in range(runs):
        run = attacked(seed, 0.5)
        low = replace(run, utility=replace(run.utility, collapsed=True))
        low.save(out / "synthetic" / method / f"seed={seed}")


def test_low_leakage_below_popularity_is_not_ranked(world: tuple[Paper, Path]) -> None:
    collapse(world[1], "noisy", 3)
    doubt = "; but 3 of the 3 runs of Noisy are below popularity: low leakage is not ranked."
    for told in ({"less": "noisy", "than": "plain"}, {"more": "plain", "than": "noisy"}):
        found = checked(world, **told, **GENDER)
        assert found.sentence.endswith(doubt)
        assert not found.ranked
    useful = checked(world, more="plain", than="noisy", by="hr@10")
    assert useful.sentence.endswith("; but 3 of the 3 runs of Noisy are below popularity.")
    assert useful.ranked
    blind = checked(world, more="plain", than="floor", **GENDER)
    assert "below popularity" not in blind.sentence
    assert blind.ranked


def test_both_sides_below_popularity_are_one_clause(world: tuple[Paper, Path]) -> None:
    collapse(world[1], "noisy", 1)
    one = checked(world, less="noisy", than="plain", **GENDER).sentence
    assert one.endswith("; but 1 of the 3 runs of Noisy is below popularity: low leakage is not ranked.")
    collapse(world[1], "plain", 1)
    both = checked(world, less="noisy", than="plain", **GENDER).sentence
    told = "; but 1 of the 3 runs of Noisy and 1 of the 3 runs of Plain are below popularity"
    assert both.endswith(f"{told}: low leakage is not ranked.")
    assert both.count("not ranked") == 1


SAME = {"auc": dict.fromkeys(("value", "low", "high"), 0.5)}


@pytest.mark.parametrize(
    ("scores", "kept", "mute"),
    [
        (SAME, 7, True),
        (SAME, 0, False),  # users differ in nothing: there was nothing to read
        ({"auc": {"value": 0.5, "low": 0.49, "high": 0.51}}, 7, False),
        ({}, 7, False),
    ],
)
def test_an_attacker_who_says_the_same_of_everybody_is_not_ranked(
    world: tuple[Paper, Path], scores: dict[str, Any], kept: int, mute: bool
) -> None:
    for seed in range(3):
        run = attacked(seed, 0.5, notes={"width": 9, "kept": kept})
        attacker = run.privacy["custom"]["attributes"]["gender"]["attackers"][0]
        attacker["scores"] = {"macro_f1": attacker["scores"]["macro_f1"], **scores}
        run.save(world[1] / "synthetic" / "noisy" / f"seed={seed}")
    found = checked(world, less="noisy", than="plain", **GENDER)
    assert found.ranked is not mute
    assert ("the attacker said the same of everybody" in found.sentence) is mute
    assert checked(world, more="plain", than="noisy", by="hr@10").ranked
    page = page_of(world[0], "table1", "synthetic", FinishedRuns(world[1], 3))
    gender = next(sheet for sheet in sheets_of(world[0], page) if sheet.title.startswith("Gender: macro"))
    noisy = next(row for row in gender.rows if row[0].startswith("Noisy"))
    assert any(cell.endswith("‡") for cell in noisy) is mute
    line = "Noisy: an attack on gender said the same of everybody (‡): it has failed."
    assert (line in marks(world[0], page)) is mute
    told = {row.method: max(entry.mute for entry in row.entries.values()) for row in page.ran}
    assert (told["noisy"], told["plain"]) == (3 if mute else 0, 0)


def test_a_part_that_is_attacked_may_be_mute_as_well() -> None:
    run = attacked(0, 0.6)
    part = run.privacy["custom"]["attributes"]["gender"]["parts"][0]
    what = KNN._replace(attacker="", part="item")
    for area, mute in ((0.5, True), (0.6, False)):
        part["auc"] = dict.fromkeys(("value", "low", "high"), area)
        found = value_of(run, what)
        assert found is not None
        assert found.mute is mute


def test_the_only_run_is_not_counted() -> None:
    assert below({"Noisy": 1}, 1) == "the run of Noisy is below popularity"
