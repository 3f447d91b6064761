"""What an answer is made of: the mean of the true class over the targets, and of nobody else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.attacks.heads import seen_after, world
from veilrec.attack import Attack, Seen, Task
from veilrec.attacks.dlg import DLG
from veilrec.defences.fedau2 import FedAU2
from veilrec.lab.lab import audit
from veilrec.lab.presets import PRESETS
from veilrec.lab.threat import Threat
from veilrec.lab.trials import Goal, People, trial_of

THREAT = Threat(attributes=("gender",), known=0.3, by_part=False, membership=False, resamples=100)
USERS = 60


@dataclass(frozen=True)
class Split(Attack):
    """Answers with the number of the class, and says so of two components."""

    def infer(self, seen: Seen, task: Task) -> Tensor:
        return torch.arange(2.0).expand(len(task.known), 2)

    def components(self, seen: Seen, task: Task) -> Mapping[str, Tensor]:
        user = torch.arange(len(task.known), dtype=torch.float64)
        return {"mine": torch.stack([user, -user], 1), "same": torch.full((len(user), 2), 0.25)}


def told(attack: Attack, people: People, seen: Seen, threat: Threat = THREAT) -> dict[str, Any]:
    found = audit(seen, people, threat, {"it": attack})["attributes"]["gender"]["attackers"]
    return found[0]["notes"]  # type: ignore[no-any-return]


def test_the_true_class_of_the_targets_alone_counts() -> None:
    label, tags = torch.arange(USERS) % 2, torch.arange(USERS)
    people = People({"gender": label}, tags)
    found = told(Split(), people, Seen.of_vectors(torch.zeros(USERS, 1)))["components"]
    target = trial_of(Goal("gender", label, ["0", "1"]), THREAT, tags, 0, 0).draw.target
    own = torch.where(label == 0, tags, -tags)[target].double()
    assert found["mine"]["value"] == pytest.approx(float(own.mean()), abs=1e-4)
    assert found["mine"]["median"] == float(own.median())
    assert found["mine"]["low"] < found["mine"]["value"] < found["mine"]["high"]
    assert found["same"] == {"value": 0.25, "low": 0.25, "high": 0.25, "median": 0.25}


def test_several_draws_are_averaged() -> None:
    label, tags = torch.arange(USERS) % 2, torch.arange(USERS)
    seen, each = Seen.of_vectors(torch.zeros(USERS, 1)), replace(THREAT, repeats=3)
    found = told(Split(), People({"gender": label}, tags), seen, each)["components"]["mine"]
    goal, own = Goal("gender", label, ["0", "1"]), torch.where(label == 0, tags, -tags).double()
    means = [float(own[trial_of(goal, each, tags, 0, draw).draw.target].mean()) for draw in range(3)]
    assert len(set(means)) == 3
    assert found["value"] == pytest.approx(sum(means) / 3, abs=1e-4)


@pytest.mark.slow
def test_dlg_has_a_prediction_and_a_correction_and_others_have_none() -> None:
    data = world(USERS)
    defence = FedAU2(head="plain", hidden=32, attributes=("gender",))
    one = PRESETS["fedau2-gradients"]
    threat = replace(one.threat, attributes=("gender",), known=0.2, resamples=100, permutations=99)
    short = {n: replace(a, steps=220) if isinstance(a, DLG) else a for n, a in one.attacks.items()}
    found = audit(seen_after(USERS, defence), People.of(data), threat, short)
    entries = {entry["name"]: entry for entry in found["attributes"]["gender"]["attackers"]}
    assert set(entries) == {"DLG", "DLG-tries", "iDLG"}
    assert "components" not in entries["iDLG"]["notes"]
    for name in ("DLG", "DLG-tries"):
        parts = entries[name]["notes"]["components"]
        found_label = parts["predicted"]["value"] - parts["correction"]["value"]  # Eq. (7), of the true class
        assert found_label == pytest.approx(1, abs=0.06)
        assert parts["correction"]["median"] < 0  # p − y of the truth
    for entry in entries.values():  # classes are levelled: the share of labels found is both
        scores = entry["scores"]
        assert scores["micro_f1"]["value"] == pytest.approx(scores["balanced_accuracy"]["value"], abs=0.02)
        assert set(entry["replicates"]) == {"auc", "balanced_accuracy", "macro_f1", "micro_f1"}
    assert entries["iDLG"]["scores"]["micro_f1"]["value"] == 1.0
