"""Saved audits of vectors: what is read again is what was written, and two are compared in pairs."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.audits import OUTSIDER, USERS, audience, audit_of
from veilrec.errors import BadInput, Corrupted
from veilrec.lab.anyone.audited import audited
from veilrec.lab.match_ids import Audience
from veilrec.metrics.paired_audits import paired
from veilrec.metrics.vector_audits import VectorAudit


def test_an_audit_is_saved_and_read_again(tmp_path: Path) -> None:
    found = audit_of(3.0, 0.0)
    found.save(tmp_path / "a.json")
    again = VectorAudit.load(tmp_path / "a.json")
    assert again.values == json.loads(json.dumps(found.values))
    assert [one.sentence for one in again.findings] == [one.sentence for one in found.findings]
    assert "person-0" not in (tmp_path / "a.json").read_text()


def test_findings_are_worst_first_and_have_a_severity() -> None:
    found = audit_of(3.0).findings
    assert [one.attribute for one in found][-1] == "coin"
    assert [one.severity for one in found] == ["high", "high", "none"]
    assert [one.attribute for one in audit_of(3.0).above(0.6)] == [one.attribute for one in found[:2]]
    assert audit_of(3.0).above(1.0) == []
    assert audit_of(0.0).above(0.5) == [], "what is luck stops no pipeline"


def test_it_is_short_where_it_is_shown() -> None:
    found = audit_of(3.0)
    assert repr(found).startswith(f"<audit of {USERS} vectors of 4 numbers: ")
    assert len(repr(found)) < 300
    shown = found._repr_html_()
    assert shown.count("<tr>") == 4
    assert "person-0" not in repr(found) + shown


# what is changed in a saved file · what the error says
DAMAGED: dict[str, tuple[list[Any], Any, str]] = {
    "no score": (["audit", "attributes", "sex", "verdict", "auc"], None, "audit.attributes.sex.verdict"),
    "text for a score": (
        ["audit", "attributes", "sex", "verdict", "auc", "value"],
        "1",
        "is no finite number",
    ),
    "a leaning of its own": (["audit", "attributes", "sex", "verdict", "leaning"], "up", "is none of above"),
    "floors of text": (["audit", "attributes", "sex", "floors", "majority"], "x", "is no table"),
    "no threat": (["audit", "threat"], None, "audit"),
    "no users": (["vectors", "users"], -1, "vectors.users: is below 0"),
    "an entry too many": (["more"], 1, 'has an unknown entry "more"'),
    "attackers without scores": (
        ["audit", "attributes", "sex", "attackers"],
        [{"name": "x"}],
        "lacks scores",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_refused(name: str, tmp_path: Path) -> None:
    place, value, said = DAMAGED[name]
    values: Any = deepcopy(json.loads(json.dumps(audit_of(3.0).values)))
    inner = values
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    (tmp_path / "a.json").write_text(json.dumps(values))
    with pytest.raises(Corrupted, match=said):
        VectorAudit.load(tmp_path / "a.json")


def test_what_is_no_audit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"a\.json: no such file; name an audit"):
        VectorAudit.load(tmp_path / "a.json")
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(BadInput, match="not an audit of vectors"):
        VectorAudit.load(tmp_path / "a.json")
    (tmp_path / "a.json").write_text(json.dumps({**audit_of(3.0).values, "version": 9}))
    with pytest.raises(BadInput, match="written as version 9; this veilrec reads version 1"):
        VectorAudit.load(tmp_path / "a.json")


def test_before_and_after_are_compared_on_the_same_people() -> None:
    found = paired(audit_of(3.0), audit_of(0.0))
    changes = {one.attribute: one for one in found.changes}
    assert changes["sex"].shown
    assert changes["sex"].difference.high < -0.2
    assert changes["sex"].sentence.startswith("sex leaks less after: AUC ")
    assert changes["sex"].sentence.endswith("These attackers find nothing of it any more.")
    assert not changes["coin"].shown
    assert changes["coin"].sentence.startswith("coin: no difference shown: ")
    turned = {one.attribute: one for one in paired(audit_of(0.0), audit_of(3.0)).changes}
    assert turned["sex"].sentence.startswith("sex leaks more after: ")
    assert turned["sex"].difference.value == -changes["sex"].difference.value


@pytest.mark.slow
def test_pairs_are_surer_than_two_intervals() -> None:
    """Whoever is easy in one is easy in the other: resamples are of the same people, whatever the vectors."""
    change = next(one for one in paired(audit_of(1.5), audit_of(1.4)).changes if one.attribute == "sex")
    widths = [side.leak.measure.high - side.leak.measure.low for side in (change.before, change.after)]
    assert change.difference.high - change.difference.low < 0.7 * float(np.hypot(*widths))


def test_an_audit_beside_itself_shows_nothing() -> None:
    found = paired(audit_of(3.0), audit_of(3.0))
    assert all(one.difference.value == 0 and not one.shown for one in found.changes)


@pytest.mark.slow
def test_only_what_is_alike_is_compared() -> None:
    def other(**changed: Any) -> VectorAudit:
        return audited(
            type(OUTSIDER)(**{"repeats": 1, "learners": ("logistic",), **changed}),
            audience(0.0),
            ("w.npy", "users.csv"),
        )

    strangers = audited(OUTSIDER, audience(0.0, first=500), ("w.npy", "users.csv"))
    for after, said in (
        (strangers, "v.npy and w.npy: audits of other people, or other labels; audit the same users"),
        (other(seed=1), "not made alike: seed is 0 and 1; audit both alike"),
        (other(known=0.3), "not made alike: known is 0.2 and 0.3"),
        (other(learners=("knn",)), "not made alike: who attacks is embeddings/logistic and embeddings/knn"),
    ):
        with pytest.raises(BadInput, match=said):
            paired(audit_of(3.0), after)


def test_people_who_could_be_guessed_are_not_marked() -> None:
    """Of forty people with one attribute a mark could be tried against all labels: so there is none."""
    few = audience(3.0, users=40)
    bare = Audience(few.vectors, few.ids, {"sex": few.labels["sex"]}, {"sex": few.classes["sex"]})
    found = audited(OUTSIDER, bare, ("v.npy", "users.csv"))
    assert found.audit["people"] == ""
    with pytest.raises(BadInput, match="too little is known about too few people"):
        paired(found, found)
