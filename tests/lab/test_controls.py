"""Controls of the auditor itself: what is planted is found, nothing is not, and what is odd is named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.worlds import federation, phones
from veilrec.attack import Public, Seen
from veilrec.attacks.attribute import AttributeInference
from veilrec.attacks.common.changes import kept_changes
from veilrec.base.keys import Keys
from veilrec.base.params import Message
from veilrec.datasets.synthetic import synthetic
from veilrec.interactions import id_hashes
from veilrec.lab.examiner import Examiner
from veilrec.lab.lab import Audit
from veilrec.lab.presets import WORST
from veilrec.lab.soundness.controls import CONTROLS, controls
from veilrec.lab.soundness.uploads import over_uploads
from veilrec.lab.threat import Threat
from veilrec.lab.trials import People
from veilrec.models.fedmf import FedMF
from veilrec.wire.codec import Spec
from veilrec.wire.uploads import Exchange, Letter, Uploads

QUICK = Threat(resamples=100, permutations=199, by_part=False, membership=False)


def passed(*classifiers: str, seed: int = 0, threat: Threat = QUICK) -> dict[str, bool]:
    return {one["control"]: one["passed"] for one in controls(classifiers, threat, seed)}


@pytest.mark.slow
@pytest.mark.parametrize("known", [0.2, 0.8])
def test_our_own_families_pass_every_control(known: float) -> None:
    found = passed(*WORST, threat=Threat(known=known))
    assert len(found) == 6
    assert all(found.values()), found


@pytest.mark.slow
def test_over_twenty_seeds_signals_are_always_found_and_noise_hardly_ever() -> None:
    found = [passed(*WORST, seed=seed) for seed in range(20)]
    for name in CONTROLS:
        wrong = sum(not one[name] for one in found)
        assert wrong <= (4 if name == "noise" else 0), (name, wrong)


@pytest.mark.slow
def test_two_families_are_enough_for_the_controls() -> None:
    assert all(passed("qda", "knn").values())


def test_where_classes_have_equal_means_a_linear_attacker_is_blind_and_the_control_says_so() -> None:
    blind = passed("lda")
    assert [name for name, there in blind.items() if not there] == ["XOR of two columns", "spread alone"]


@pytest.mark.slow  # beside the one above
def test_a_control_that_finds_a_leak_in_noise_is_not_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = CONTROLS["planted signal"]
    monkeypatch.setitem(CONTROLS, "noise", CONTROLS["noise"]._replace(make=planted.make))
    monkeypatch.setitem(CONTROLS, "constant", CONTROLS["constant"]._replace(make=planted.make))
    found = passed("lda")
    assert not found["noise"]
    assert not found["constant"]
    assert found["perfect copy"]


# Kept uploads

USERS = 240
LABEL = Keys.seed(8).fold("label").integers(2, USERS)


class Kept:
    """Rounds of training: a third of the users a round, and noise drawn anew on what tells gender."""

    def __init__(self, rounds: int, signal: float = 0.5) -> None:
        self.rounds, self.signal = list(range(1, rounds + 1)), signal

    def holds(self, name: str) -> bool:
        return name == "user"

    def cohort(self, round: int) -> torch.Tensor:
        return (Keys.seed(round).fold("cohort").uniform(USERS) < 1 / 3).nonzero().squeeze(1)

    def chunks(self, round: int) -> Iterator[Exchange]:
        for some in self.cohort(round).split(50):
            noise = Keys.seed(round).fold("noise").fold(some).normal(1, 4)
            values: Message = {"user": noise + self.signal * LABEL[some, None, None]}
            yield Exchange(round, Letter({}, {}), Uploads(some, values))


def evidence(kept: Any, seats: int = 1) -> Seen:
    rows = torch.arange(USERS)[:, None].expand(-1, seats)
    model = FedMF(4, 1, dim=4, user="exposed")
    public = Public(model, {"user": Spec((1, 4))}, False, None, rows, USERS)
    return Seen(public, lambda *parts: iter(()), kept=kept)


def who() -> People:
    return People({"gender": LABEL}, id_hashes([f"user {k}" for k in range(USERS)]))


def test_more_kept_uploads_of_the_same_users_tell_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("veilrec.lab.soundness.uploads.LEARNERS", ("lda",))
    (curve,) = over_uploads(evidence(Kept(36)), who(), QUICK)
    points = curve["points"]
    assert [one["uploads"] for one in points] == [1, 3, 10, max(one["uploads"] for one in points)]
    assert points[0]["mean"] == 1
    assert 2.9 < points[1]["mean"] <= 3
    assert points[3]["mean"] == pytest.approx(12, abs=0.5)
    auc = [one["auc"]["value"] for one in points]
    assert auc[1] > auc[0] + 0.05
    assert auc[3] > auc[1] + 0.05
    assert curve["sentence"].startswith("gender by kept uploads of each user: one AUC 0.")
    assert ", up to 3 (" in curve["sentence"]
    assert ", all (1" in curve["sentence"]


def test_points_beyond_what_was_kept_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("veilrec.lab.soundness.uploads.LEARNERS", ("lda",))
    (curve,) = over_uploads(evidence(Kept(2)), who(), QUICK)
    assert [one["uploads"] for one in curve["points"]] == [1, 2]


def test_without_kept_uploads_of_single_users_there_is_no_curve() -> None:
    assert over_uploads(evidence(None), who(), QUICK) == []
    assert over_uploads(evidence(Kept(0)), who(), QUICK) == []
    assert over_uploads(evidence(Kept(3), seats=2), who(), QUICK) == []
    assert over_uploads(Seen.of_vectors(torch.zeros(5, 2)), who(), QUICK) == []


def test_an_attribute_that_too_few_of_them_have_is_told() -> None:
    label = torch.where(torch.arange(USERS) < 6, LABEL, -1)
    people = People({"gender": label}, id_hashes([f"user {k}" for k in range(USERS)]))
    (curve,) = over_uploads(evidence(Kept(2)), people, QUICK)
    assert curve["points"] == []
    assert curve["sentence"].startswith("gender by kept uploads was not measured: threat.")


def test_the_newest_uploads_are_read_and_their_mean() -> None:
    seen = evidence(Kept(6))
    (one, count), (every, several) = kept_changes(seen, seen.public, 128, (1, 6))
    user = int(several.argmax())
    told = {r: e for r in Kept(6).rounds for e in Kept(6).chunks(r) if user in e.received.cohort.tolist()}
    rows = [
        e.received.values["user"][e.received.cohort.tolist().index(user)].flatten() for e in told.values()
    ]
    assert torch.allclose(one[user], rows[-1])
    assert torch.allclose(every[user], torch.stack(rows).mean(0), atol=1e-6)
    assert (int(count[user]), int(several[user])) == (1, len(rows))


@pytest.mark.slow
def test_our_own_learners_see_more_in_more_uploads() -> None:
    (curve,) = over_uploads(evidence(Kept(36)), who(), QUICK)
    assert curve["points"][-1]["auc"]["value"] > curve["points"][0]["auc"]["value"] + 0.1


@pytest.mark.slow  # beside controls and uploads alone
def test_an_audit_of_a_run_has_its_controls_only_when_asked() -> None:
    data = synthetic(users=40, items=30)
    fed = federation(phones(data), FedMF(30, dim=4, user="exposed"))
    threat = Threat(attributes=("gender",), resamples=100, permutations=99, by_part=False, membership=False)
    one = Audit("own", threat, {"embeddings": AttributeInference("embeddings", classifiers=("lda",))})
    examiner = Examiner(data, [one])
    plain = examiner.examine(fed, fed.start(), 0, None, lambda *told: None)["own"]
    assert "controls" not in plain
    found = examiner.examine(fed, fed.start(), 0, None, lambda *told: None, controls=True)["own"]
    assert [entry["control"] for entry in found["controls"]] == list(CONTROLS)
    assert found["uploads"] == []
