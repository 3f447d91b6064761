"""Audits as a person reads them."""

from __future__ import annotations

import pytest

from tests.results import attribute, audit, spread
from veilrec.cli.show.leaks import measure, print_audit, print_verdicts, printable


def value_attribute() -> dict[str, object]:
    score = {"value": 0.4, "low": 0.3, "high": 0.5}
    return {
        "kind": "value",
        "range": [7, 73],
        "mean": 34.05,
        "known": 180,
        "targets": 720,
        "floors": {"mean": {"r2": 0.0, "spearman": 0.0, "mae": 9.9}},
        "attackers": [
            {"name": "embeddings/forest", "scores": {"spearman": score, "r2": score, "mae": score}, "p": None}
        ],
        "verdict": {
            "attacker": "embeddings/forest",
            "families": ["forest"],
            "score": "spearman",
            "spearman": score,
            "leaning": "above",
            "replicates": [],
            "sentence": "An attacker guesses age to within 8.1 on average; without looking: 9.9.",
        },
    }


def test_an_audit_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    found = audit({"gender": attribute(0.78, spread(0.78)), "age": value_attribute()}, grants=["which items"])
    print_audit("veilrec", found)
    said = capsys.readouterr().out
    flat = " ".join(said.split())
    for expected in (
        "Audit veilrec: one upload of every user",
        "20 % of the users known",
        "Granted: which items.",
        "gender: female 273, male 670; 189 users known, 754 attacked",
        "updates/logistic",
        "0.780 [0.7",
        "always guessing male 0.500 0.500 0.710",
        "guessing any of 2 0.500 0.500 0.500",
        "0.001",
        "age: 7 to 73, 34.0 on average",
        "always guessing the mean 0.000 0.000 9.900",
        "only one family of attackers: more may find more",
    ):
        assert expected in flat, expected


@pytest.mark.parametrize(("repeats", "then"), [(1, "."), (5, ", attacked 5 times.")])
def test_whose_labels_are_known_is_said_where_they_are_those_who_consent(
    capsys: pytest.CaptureFixture[str], repeats: int, then: str
) -> None:
    threat = {"known": "consenting", "repeats": repeats}
    print_audit("pard@consenting", audit({"gender": attribute(0.78, spread(0.78))}, threat=threat))
    flat = " ".join(capsys.readouterr().out.split())
    assert f"; known are those who share the attribute openly{then} gender:" in flat
    assert "189 users known, 754 attacked" in flat
    assert "%" not in flat.split("gender:")[0]


def test_verdicts_are_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    print_verdicts(audit({"gender": attribute(0.78, spread(0.78)), "job": {"verdict": None}}))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("An attacker who sees the uploads guesses gender right for 75 of 100 users.")
    assert lines[-1] == "job: nobody tried, so nothing is known."


def test_what_is_wrong_with_the_input_is_said_before_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    entry = attribute(0.78, spread(0.78))
    apart = {**attribute(0.51, spread(0.51, 0.05))["verdict"], "sentence": "Nobody finds gender then."}
    found = audit(
        {
            "gender": {
                **entry,
                "without_copies": {"left_out": 17.0, "verdict": apart},
                "without_zeros": {"left_out": 80.0, "verdict": apart},
            }
        },
        soundness=[{"kind": "ids", "sentence": "Column 3 numbers the users\x1b."}],
    )
    for tell in (print_verdicts, lambda told: print_audit("veilrec", told)):
        tell(found)
        said = " ".join(capsys.readouterr().out.split())
        assert "Before you believe it: Column 3 numbers the users\ufffd." in said
        assert "Without 17 of those attacked, of whom a copy is known: Nobody finds gender then. (" in said
        assert "Without 80 of those attacked, whose vector is all zeros: Nobody finds gender then. (" in said


def test_controls_and_the_curve_of_uploads_stand_below_an_audit(capsys: pytest.CaptureFixture[str]) -> None:
    score = {"value": 0.5, "low": 0.45, "high": 0.55}
    row = {"control": "noise", "must_say": "nothing", "passed": True, "attacker": "lda", "auc": score}
    missed = {**row, "control": "spread alone", "must_say": "a leak", "passed": False}
    uploads = [{"attribute": "gender", "points": [], "sentence": "gender by kept uploads of each user: …"}]
    print_audit("veilrec", audit({}, controls=[row, missed], uploads=uploads))
    said = " ".join(capsys.readouterr().out.split())
    assert "gender by kept uploads of each user: …" in said
    assert "noise nothing lda 0.500 [0.450, 0.550] says so" in said
    assert "spread alone a leak lda 0.500 [0.450, 0.550] does not" in said
    assert "Controls not passed: spread alone." in said


@pytest.mark.parametrize("chosen", ["attacker", "threat", "neither"])
def test_a_verdict_says_that_its_attacker_is_an_oracle(
    capsys: pytest.CaptureFixture[str], chosen: str
) -> None:
    entry, threat = attribute(0.78, spread(0.78)), {"known": 0.2, "repeats": 1, "selection": "last"}
    entry["attackers"][0]["oracle"] = chosen == "attacker"
    entry["attackers"].append({**entry["attackers"][0], "name": "updates/columns", "oracle": True})
    if chosen == "threat":
        threat["selection"] = "oracle"
    print_verdicts(audit({"gender": entry}, threat=threat, oracle=True))
    said = " ".join(capsys.readouterr().out.split())
    assert ("(updates/logistic, an oracle, AUC 0.780" in said) == (chosen != "neither")


def test_oracles_losses_and_membership_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    entry = attribute(0.78, spread(0.78))
    entry["attackers"][0] |= {"oracle": True, "notes": {"loss": "distances kept within 3 %"}}
    score = {"value": 0.97, "low": 0.96, "high": 0.98}
    membership = {
        "rows": score,
        "norms": score,
        "direction": score,
        "users": 943,
        "items": 1682,
        "worst": "rows",
    }
    print_audit("pard", audit({"gender": entry}, oracle=True, membership=membership))
    said = " ".join(capsys.readouterr().out.split())
    assert "an oracle that nobody has" in said
    assert "updates/logistic (oracle)" in said
    assert "Reading: distances kept within 3 %." in said
    assert "AUC 0.970 [0.960, 0.980] by rows, over 943 users and 1,682 items" in said


def test_membership_below_chance_is_turned_round(capsys: pytest.CaptureFixture[str]) -> None:
    """AUC 0.03 is the whole history, upside down; an interval that covers chance stays as it is."""
    low, unsure = {"value": 0.03, "low": 0.02, "high": 0.04}, {"value": 0.48, "low": 0.44, "high": 0.52}
    found = {"rows": low, "norms": unsure, "users": 943, "items": 1682, "worst": "rows"}
    print_verdicts(audit({}, membership=found))
    assert "AUC 0.970 [0.960, 0.980], turned round, by rows" in " ".join(capsys.readouterr().out.split())
    print_verdicts(audit({}, membership={**found, "worst": "norms"}))
    assert "AUC 0.480 [0.440, 0.520] by norms" in " ".join(capsys.readouterr().out.split())


def test_control_characters_are_shown_not_obeyed() -> None:
    assert printable("a\x1b[31mb\nc\x07") == "a\ufffd[31mb\ufffdc\ufffd"


def test_a_measure_without_an_interval() -> None:
    assert measure({"value": 0.5, "low": None, "high": None}) == "0.500"
    assert measure(None) == "–"
