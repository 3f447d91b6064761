"""The verdict: wrong more often than chance is leakage too; beside it stands what shuffled labels reach."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from veilrec.attack import Attack, Seen, Task
from veilrec.attacks.attribute import AttributeInference
from veilrec.base.keys import Keys
from veilrec.interactions import id_hashes
from veilrec.lab.lab import audit
from veilrec.lab.presets import WORST
from veilrec.lab.soundness.shuffled import likeness, together
from veilrec.lab.threat import KnownDraw, Threat
from veilrec.lab.trials import People

QUICK = Threat(known=0.8, resamples=200, permutations=199, by_part=False, membership=False)
FOUR = ("logistic", "svc", "knn", "qda")


def table(users: int, width: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Vectors that tell a label by mean and spread, and the label."""
    keys = Keys.seed(seed).fold("table")
    label = (keys.fold("label").uniform(users) < 0.6).long()
    rows = keys.normal(users, width, dtype=torch.float64) * torch.arange(1, width + 1) ** -0.3
    shift = 0.3 * keys.fold("shift").normal(width, dtype=torch.float64)
    return rows * (1 + 0.3 * label[:, None]) + shift * label[:, None], label


def equalised(rows: Tensor, label: Tensor) -> Tensor:
    """The same rows after a map that gives all classes exactly the mean and the covariance of everybody."""
    left = torch.empty_like(rows)
    whole = torch.linalg.cholesky(torch.cov(rows.T, correction=0))
    for one in label.unique():
        own = rows[label == one]
        root = torch.linalg.cholesky(torch.cov(own.T, correction=0))
        white = torch.linalg.solve_triangular(root, (own - own.mean(0)).T, upper=False)
        left[label == one] = (whole @ white).T + rows.mean(0)
    return left


def told(
    rows: Tensor, labels: dict[str, Tensor], threat: Threat = QUICK, names: Sequence[str] = FOUR
) -> dict[str, Any]:
    classes = {name: ["a", "b", "c"][: int(label.max()) + 1] for name, label in labels.items()}
    who = People(labels, id_hashes([f"user {k}" for k in range(len(rows))]), classes)
    attacks = {"": AttributeInference("embeddings", classifiers=names)}
    found: dict[str, Any] = audit(Seen.of_vectors(rows.float()), who, threat, attacks, sound=False)
    return found["attributes"]


# What is chosen


@pytest.mark.parametrize("repeats", [1, 2])
def test_on_an_exactly_equalised_table_the_verdict_says_who_reads_it_turned_round(repeats: int) -> None:
    rows, label = table(400, 12)
    level = equalised(rows, label)
    for one in (0, 1):
        assert torch.allclose(level[label == one].mean(0), rows.mean(0))
    entry = told(level, {"gender": label}, replace(QUICK, repeats=repeats))["gender"]
    verdict = entry["verdict"]
    assert verdict["leaning"] == "below"
    assert verdict["attacker"] == "embeddings/qda"
    assert verdict["auc"]["value"] < 0.2
    assert verdict["sentence"].startswith(
        "An attacker who sees the user vectors reads gender turned round: given a a and a b user, it takes "
    )
    chosen = next(one for one in entry["attackers"] if one["name"] == verdict["attacker"])
    assert chosen["validation"] < 0.35


@dataclass(frozen=True)
class Learned(Attack):
    """Says what it was told to, with so much noise; it claims to have learned from the known users."""

    truth: tuple[int, ...]
    strength: float
    learns = True

    def infer(self, seen: Seen, task: Task) -> Tensor:
        label = torch.tensor(self.truth)
        scores = self.strength * (label - 0.5) + Keys.seed(len(self.truth)).fold("n").normal(len(label))
        return torch.stack([-scores, scores], 1)


@pytest.mark.parametrize(("up", "down", "chosen"), [(0.6, -1.2, "down"), (1.2, -0.6, "up")])
def test_the_worst_is_furthest_from_chance_on_either_side(up: float, down: float, chosen: str) -> None:
    label = Keys.seed(1).integers(2, 500)
    truth = tuple(label.tolist())
    attacks = {"up": Learned(truth, up), "down": Learned(truth, down)}
    who = People({"gender": label}, id_hashes([f"user {k}" for k in range(500)]))
    found = audit(Seen.of_vectors(torch.zeros(500, 1)), who, QUICK, attacks)["attributes"]["gender"]
    assert found["verdict"]["attacker"] == chosen
    assert found["verdict"]["leaning"] == ("above" if chosen == "up" else "below")


def test_the_quadratic_family_is_among_the_worst_of_families_and_finds_spreads() -> None:
    assert "qda" in WORST
    keys = Keys.seed(3)
    label = keys.fold("label").integers(2, 500)
    rows = keys.normal(500, 6) * (1 + label[:, None])
    by = {one["classifier"]: one for one in told(rows, {"gender": label})["gender"]["attackers"]}
    assert by["qda"]["family"] == "quadratic"
    assert by["qda"]["scores"]["auc"]["value"] > 0.85
    assert abs(by["logistic"]["scores"]["auc"]["value"] - 0.5) < 0.15


# The floor of shuffled labels


def shuffled_again(
    rows: Tensor, label: Tensor, threat: Threat, shuffles: int, names: Sequence[str]
) -> tuple[float, float]:
    """What attackers reach who are taught each shuffle anew, and what verdicts say that they would."""
    labels = {f"shuffle {k}": label[Keys.seed(k).fold("shuffle").order(len(label))] for k in range(shuffles)}
    verdicts = [entry["verdict"] for entry in told(rows, labels, threat, names).values()]
    reached = sum(abs(one["auc"]["value"] - 0.5) for one in verdicts) / shuffles
    return 0.5 + reached, sum(one["shuffled"]["value"] for one in verdicts) / shuffles


@pytest.mark.slow
@pytest.mark.parametrize("known", [0.2, 0.8])
@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_floor_is_what_attackers_reach_who_learn_shuffled_labels(
    classes: int, repeats: int, known: float
) -> None:
    keys = Keys.seed(classes)
    rows, label = keys.normal(300, 16), keys.fold("label").integers(classes, 300)
    threat = replace(QUICK, known=known, repeats=repeats, resamples=100)
    taught, dealt = shuffled_again(rows, label, threat, 60, FOUR)
    assert taught == pytest.approx(dealt, abs=0.25 * (dealt - 0.5))


def test_the_floor_of_one_draw_is_what_attackers_reach_who_learn_shuffled_labels() -> None:
    rows, label = Keys.seed(7).normal(200, 4), Keys.seed(7).fold("label").integers(2, 200)
    taught, dealt = shuffled_again(rows, label, replace(QUICK, resamples=100, known=0.5), 30, ("knn", "qda"))
    assert taught == pytest.approx(dealt, abs=0.4 * (dealt - 0.5))


def test_the_floor_does_not_depend_on_what_leaks() -> None:
    rows, label = table(300, 8)
    entry = told(rows, {"gender": label}, replace(QUICK, known=0.5))["gender"]
    floor = entry["verdict"]["shuffled"]
    counts = torch.bincount(label).double() / 2
    spread = math.sqrt((counts.sum() + 1) / (12 * counts.prod()))  # of the AUC of labels dealt at random
    assert entry["verdict"]["auc"]["value"] > 0.8
    assert floor["value"] - 0.5 == pytest.approx(spread * math.sqrt(2 / math.pi), rel=0.15)
    assert floor["high"] - 0.5 == pytest.approx(1.96 * spread, rel=0.2)


def test_draws_that_share_their_users_share_their_luck() -> None:
    known = torch.arange(100) < 20
    one, other = KnownDraw(known, ~known), KnownDraw(known.roll(50), ~known.roll(50))
    assert likeness([one]) == 0
    assert likeness([one, one]) == 1
    assert likeness([one, KnownDraw(~known, known)]) == 1  # the same pairs, whoever of the two is known
    assert likeness([one, other]) == pytest.approx(20 * 20 / 1600)
    luck = [Keys.seed(k).normal(999, dtype=torch.float64) for k in (1, 2)]
    assert torch.equal(together([one], luck[:1]), luck[0])
    assert float(together([one, one], luck).std()) == pytest.approx(1, abs=0.06)
    assert float(together([one, other], luck).std()) == pytest.approx(math.sqrt(1.25 / 2), abs=0.05)


def test_an_oracles_floor_has_the_luck_of_its_choice() -> None:
    keys = Keys.seed(9)
    rows, label = keys.normal(200, 12), keys.fold("label").integers(2, 200)
    last = told(rows, {"gender": label}, QUICK, ("mlp-pard",))["gender"]["verdict"]["shuffled"]
    best = told(rows, {"gender": label}, replace(QUICK, selection="oracle"), ("mlp-pard",))["gender"]
    assert best["attackers"][0]["p"] is None
    assert best["verdict"]["shuffled"]["value"] > last["value"] + 0.01


def test_of_attackers_who_only_read_the_floor_is_that_of_the_luckiest() -> None:
    @dataclass(frozen=True)
    class Reads(Attack):
        seed: int

        def infer(self, seen: Seen, task: Task) -> Tensor:
            return Keys.seed(self.seed).fold("reads").normal(200, 2)

    label = Keys.seed(4).integers(2, 200)
    who = People({"gender": label}, id_hashes([f"user {k}" for k in range(200)]))
    floors = []
    for count in (1, 6):
        attacks = {f"reader {k}": Reads(k) for k in range(count)}
        found = audit(Seen.of_vectors(torch.zeros(200, 1)), who, QUICK, attacks)["attributes"]["gender"]
        floors.append(found["verdict"]["shuffled"]["value"])
    assert floors[1] > floors[0] + 0.02
