"""The gradients of FedAU²'s adversaries: each attribute has one of its own, found by its name."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.attacks.heads import seen_after, share_right, task_of, world
from veilrec.attack import Attack, Seen
from veilrec.attacks.common.gradients import heads_of, part_for
from veilrec.attacks.dlg import DLG
from veilrec.attacks.idlg import iDLG
from veilrec.defences.fedau2 import FedAU2
from veilrec.errors import BadInput
from veilrec.lab.lab import audit
from veilrec.lab.presets import PRESETS
from veilrec.lab.trials import People

USERS = 40
BOTH = ("gender", "region")


def truth_of(attribute: str, users: int = USERS) -> Tensor:
    return world(users).attributes[attribute]


def plain(*attributes: str, users: int = USERS) -> Seen:
    """What the server sees of adversaries that hide nothing."""
    return seen_after(users, FedAU2(head="plain", hidden=32, attributes=attributes))


@pytest.mark.parametrize(
    "attack", [DLG(starts=(0.1,), steps=150), iDLG(), iDLG(bias=False)], ids=["DLG", "iDLG", "rows"]
)
def test_each_attribute_is_read_off_its_own_adversary(attack: Attack) -> None:
    seen = plain(*BOTH)
    for attribute in BOTH:
        task = task_of(USERS, attribute)
        assert attack.answers(seen, task)
        assert share_right(attack.infer(seen, task), truth_of(attribute)) >= 0.9
    assert attack.notes(seen) == {"gradient": "as uploaded"}


def test_one_search_for_each_adversary() -> None:
    seen, attack = plain(*BOTH), DLG(steps=5, starts=(0.3,))
    gender, region = (attack.reconstruct(seen, task_of(USERS, attribute)) for attribute in BOTH)
    assert (gender.label.shape, region.label.shape) == ((USERS, 2), (USERS, 7))
    assert attack.reconstruct(seen, task_of(USERS, "gender", seed=1)) is gender


def test_an_attribute_that_nobody_unlearns_is_not_answered() -> None:
    seen = plain("gender")
    for attack in (DLG(), iDLG()):
        assert attack.answers(seen, task_of(USERS))
        assert not attack.answers(seen, task_of(USERS, "age"))
        with pytest.raises(BadInput, match='no part "adversary"'):
            attack.infer(seen, task_of(USERS, "age"))


def test_a_part_of_the_plain_name_comes_first() -> None:
    seen = plain("gender")
    assert part_for(seen, "adversary", "gender") == "adversary_gender"
    assert part_for(seen, "adversary", "age") == "adversary"
    assert part_for(seen, "item", "gender") == "item"
    assert part_for(Seen.of_vectors(torch.zeros(3, 2)), "adversary", "gender") == "adversary"
    assert heads_of(plain(*BOTH), "adversary") == ["adversary_gender", "adversary_region"]
    assert heads_of(seen, "item") == ["item"]


def test_idlg_reads_what_the_dual_stochastic_head_cannot_turn() -> None:
    users = 400
    seen = seen_after(users, FedAU2(hidden=32, attributes=("gender",)))
    right = share_right(iDLG().infer(seen, task_of(users)), truth_of("gender", users))
    expected = 0.5 * (1 + math.erf(2 / math.sqrt(2 * 2.0) / math.sqrt(2)))  # Φ(2 / √(2λ)), λ = 2
    assert abs(right - expected) < 4 * math.sqrt(0.84 * 0.16 / users)


def test_dlg_finds_less_through_a_dual_stochastic_head() -> None:
    users, attack = 80, DLG(starts=(0.1,), steps=150)
    right = {}
    for head in ("plain", "vae", "dsvae"):
        seen = seen_after(users, FedAU2(head=head, hidden=32, attributes=("gender",)))  # type: ignore[arg-type]
        right[head] = share_right(attack.infer(seen, task_of(users)), truth_of("gender", users))
    assert right["plain"] > 0.95
    assert right["vae"] > 0.8 > right["dsvae"]


def test_several_uploads_outvote_what_a_dual_stochastic_head_draws() -> None:
    users = 200
    seen, truth = seen_after(users, FedAU2(hidden=32, attributes=("gender",))), truth_of("gender", users)
    one, five, many = (share_right(iDLG(uploads=k).infer(seen, task_of(users)), truth) for k in (1, 5, 25))
    assert one < 0.9 < 0.93 < five < many
    assert many > 0.99
    told, other = (iDLG(uploads=k).infer(seen, task_of(users)) for k in (1, 2))
    agreed = other.abs().amax(1) > 0.5  # of two votes of the same weight
    assert torch.equal(other[agreed].argmax(1), told[agreed].argmax(1))
    assert 0.5 < float(agreed.double().mean()) < 1


def test_an_upload_is_not_drawn_from_twice_and_the_first_is_the_probe() -> None:
    seen = seen_after(USERS, FedAU2(hidden=8, attributes=("gender",)))
    name = "adversary_gender.last.weight"
    first, second, third = (
        torch.cat([one.received.values[name] for one in seen.probe({"adversary_gender"}, again)])  # type: ignore[list-item, misc]
        for again in (0, 1, 2)
    )
    probe = torch.cat([one.received.values[name] for one in seen.probe({"adversary_gender"})])  # type: ignore[list-item, misc]
    assert torch.equal(first, probe)
    assert not torch.equal(first, second)
    assert not torch.equal(second, third)


def test_no_upload_is_refused() -> None:
    with pytest.raises(BadInput, match=r"attack\.uploads: 0 is too small"):
        iDLG(uploads=0)


@pytest.mark.parametrize("known", [0.1, *(pytest.param(k, marks=pytest.mark.slow) for k in (0.3, 0.5))])
def test_the_verdict_on_gradients_is_the_worst_of_all(known: float) -> None:
    """Nobody learns there, so that a draw of known users has no say in who is the worst."""
    seen, one = seen_after(60, FedAU2(hidden=8, attributes=("gender",))), PRESETS["fedau2-gradients"]
    threat = replace(one.threat, attributes=("gender",), known=known, resamples=100, permutations=99)
    short = {n: replace(a, steps=40) if isinstance(a, DLG) else a for n, a in one.attacks.items()}
    entry = audit(seen, People.of(world(60)), threat, short)["attributes"]["gender"]
    scores = [found["scores"]["auc"]["value"] for found in entry["attackers"]]
    assert entry["verdict"]["auc"]["value"] == max(scores, key=lambda score: abs(score - 0.5))


def test_the_preset_has_the_published_attack_and_two_stronger_ones() -> None:
    found = PRESETS["fedau2-gradients"]
    assert list(found.attacks) == ["DLG", "DLG-tries", "iDLG"]
    published = found.attacks["DLG"]
    assert isinstance(published, DLG)
    assert (published.starts, published.soft_label, published.steps, published.lr) == (
        (1.0,),
        False,
        300,
        0.1,
    )
    assert not found.threat.grants
    assert (found.threat.balanced, found.threat.repeats) == (True, 1)
