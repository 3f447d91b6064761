"""The control: what is found of people on whom nothing was trained is no leak of training."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.audits import OUTSIDER, USERS, audience, audit_of
from veilrec.errors import BadInput
from veilrec.lab.anyone.control import on_control
from veilrec.metrics.vector_audits import VectorAudit


def test_what_training_put_there_is_told_from_what_is_true_of_anybody() -> None:
    leak = audit_of(3.0, 0.0).audit["attributes"]["sex"]["control"]
    assert leak["users"] == USERS
    assert leak["difference"]["low"] > 0.2
    assert leak["control"]["auc"]["low"] < 0.5 < leak["control"]["auc"]["high"]
    assert "it finds less" in leak["sentence"]
    assert leak["main"]["auc"] == audit_of(3.0, 0.0).audit["attributes"]["sex"]["verdict"]["auc"]
    shared = audit_of(3.0, 3.0).audit["attributes"]["sex"]["control"]
    assert shared["difference"]["low"] < 0 < shared["difference"]["high"]
    assert "leaving a person out of training does not hide it" in shared["sentence"]


def test_amounts_have_a_control_as_well() -> None:
    found = audit_of(3.0, 0.0).audit["attributes"]["age"]["control"]
    assert found["score"] == "spearman"
    assert found["blind"]["spearman"] == 0.0
    assert found["blind"]["mae"] > 0
    assert found["difference"]["low"] > 0.2


@pytest.mark.slow
def test_the_control_changes_nothing_about_the_others() -> None:
    def without(audit: VectorAudit) -> dict[str, object]:
        entries = audit.audit["attributes"].items()
        return {name: {**entry["verdict"], "control": None} for name, entry in entries}

    assert without(audit_of(3.0, 0.0)) == without(audit_of(3.0))


@pytest.mark.slow
def test_classes_go_by_their_names() -> None:
    """A control whose classes are numbered in another order, and one of which the others have none."""
    main, control = audience(3.0), audience(3.0, first=10_000)
    found = audit_of(3.0).audit["attributes"]
    expected = on_control(OUTSIDER, main, control, found)["sex"]["control"]
    labels = {"sex": 2 - control.labels["sex"]}
    labels["sex"][:5] = 0
    other = replace(control, labels=labels, classes={"sex": ("unknown to them", "male", "female")}, values={})
    turned = on_control(OUTSIDER, main, other, found)
    assert turned.keys() == {"sex"}
    assert turned["sex"]["users"] == USERS - 5
    assert abs(turned["sex"]["control"]["auc"]["value"] - expected["auc"]["value"]) < 0.02


def test_nobody_is_on_both_sides() -> None:
    found = audit_of(3.0).audit["attributes"]
    with pytest.raises(BadInput, match="--control: 40 users are among those attacked as well"):
        on_control(OUTSIDER, audience(3.0), audience(3.0, first=160), found)
    narrow = audience(3.0, first=10_000)
    with pytest.raises(BadInput, match="--control: vectors of 3 numbers, where those attacked have 4"):
        on_control(OUTSIDER, audience(3.0), replace(narrow, vectors=narrow.vectors[:, :3]), found)
