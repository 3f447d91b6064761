"""DLG and iDLG: labels from the gradient of an uploaded head, and what is left of it under protection."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.attacks.heads import (
    GRADIENTS,
    WEIGHTS,
    Muffled,
    Watched,
    head_of,
    seen_after,
    share_right,
    task_of,
    world,
)
from tests.worlds import silos
from veilrec.attack import Attack, Seen, Task
from veilrec.attacks.common import matching
from veilrec.attacks.common.gradients import Slopes, blocks, slopes
from veilrec.attacks.common.heads import Head, layers
from veilrec.attacks.common.matching import square_norm, way_down
from veilrec.attacks.dlg import DLG, components
from veilrec.attacks.idlg import iDLG
from veilrec.base.keys import Keys
from veilrec.base.params import Params
from veilrec.errors import BadInput
from veilrec.protocols.fedavg import FedAvg
from veilrec.recipe.catalogue import build, find, options

USERS = 60


@pytest.fixture(scope="module")
def bare() -> Seen:
    """What the server sees of a head that nothing protects; one search in it does for several tests."""
    return seen_after(USERS, Watched())


def truth_of(users: int, attribute: str = "gender") -> Tensor:
    return world(users).attributes[attribute]


class Doubled(nn.Sequential):
    """Its first matrix is given twice the vector, so that its gradient is not ∇b times the vector."""

    def forward(self, vector: Tensor) -> Tensor:
        return super().forward(2 * vector)  # type: ignore[no-any-return]


def lone(kind: str, classes: int = 3, users: int = 6) -> tuple[Head, Params, Tensor, Tensor, Params]:
    """A head by itself: its weights, users' vectors and labels, and their gradients by plain autograd."""
    module = (
        Doubled(head_of("linear", 4, 16, classes)) if kind == "doubled" else head_of(kind, 4, 16, classes)
    )
    keys = Keys.seed(1)
    weights = {n: 0.5 * keys.fold(n).normal(*w.shape) for n, w in module.named_parameters()}
    vector, label = keys.fold("x").normal(users, 4), keys.fold("y").integers(classes, users)
    gradient: dict[str, list[Tensor]] = {name: [] for name in weights}
    for x, y in zip(vector, label, strict=True):
        leaves = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
        logits = torch.func.functional_call(module, leaves, (x[None],))
        for name, slope in zip(
            leaves, torch.autograd.grad(F.cross_entropy(logits, y[None]), list(leaves.values())), strict=True
        ):
            gradient[name].append(slope)
    found = layers(module)
    stacked = {name: torch.stack(slope) for name, slope in gradient.items()}
    return Head(module, found[0], found[-1], classes), weights, vector, label, stacked


@pytest.mark.parametrize(
    ("attack", "protocol"),
    [
        pytest.param(DLG(), GRADIENTS, id="DLG-gradients", marks=pytest.mark.slow),
        pytest.param(DLG(), WEIGHTS, id="DLG-weights", marks=pytest.mark.slow),
        pytest.param(iDLG(), GRADIENTS, id="iDLG-gradients"),
        pytest.param(iDLG(), WEIGHTS, id="iDLG-weights"),
        pytest.param(iDLG(bias=False), GRADIENTS, id="rows-gradients"),
        pytest.param(iDLG(bias=False), WEIGHTS, id="rows-weights"),
    ],
)
def test_an_unprotected_head_gives_the_labels_away(attack: Attack, protocol: FedAvg, bare: Seen) -> None:
    seen = bare if protocol is GRADIENTS else seen_after(USERS, Watched(), protocol=protocol)
    assert attack.answers(seen, task_of(USERS))
    assert share_right(attack.infer(seen, task_of(USERS)), truth_of(USERS)) >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("attribute", ["gender", "region"])
def test_a_thousand_users_of_a_wide_head(attribute: str) -> None:
    seen = seen_after(1000, Watched(attribute, hidden=100), dim=64, rounds=10)
    task, truth = task_of(1000, attribute), truth_of(1000, attribute)
    assert share_right(DLG().infer(seen, task), truth) >= 0.95
    assert share_right(iDLG().infer(seen, task), truth) >= 0.95


@pytest.mark.parametrize("kind", ["linear", "dense", "no bias"])
@pytest.mark.parametrize("bias", [True, False])
def test_idlg_is_exact_whichever_way_the_matrices_lie(kind: str, bias: bool) -> None:
    seen = seen_after(USERS, Watched("region", kind))
    scores = iDLG(bias=bias).infer(seen, task_of(USERS, "region"))
    assert share_right(scores, truth_of(USERS, "region")) == 1.0
    assert ((scores > 0).sum(1) == 1).all()  # p − y is negative for the true class alone


def test_idlg_reads_the_numbers_of_the_last_layer() -> None:
    head, weights, vector, label, gradient = lone("dense")
    hidden = (vector @ weights["0.weight"] + weights["0.bias"]).relu()
    gap = (hidden @ weights["2.weight"] + weights["2.bias"]).softmax(1) - F.one_hot(label, 3)
    torch.testing.assert_close(gradient["2.bias"], gap)
    torch.testing.assert_close(head.class_rows(gradient).sum(2), gap * hidden.sum(1, keepdim=True))


@pytest.mark.parametrize("kind", ["linear", "dense", "no bias"])
def test_theorem_one_holds_at_the_true_input(kind: str) -> None:
    head, weights, vector, label, gradient = lone(kind)
    predicted, correction = components(head, weights, gradient, vector, Keys.seed(0).fold(torch.arange(6)))
    torch.testing.assert_close(predicted - correction, F.one_hot(label, 3).float())


@pytest.mark.slow
def test_the_components_come_with_the_reconstruction(bare: Seen) -> None:
    seen, truth = bare, truth_of(USERS)
    replay = DLG().reconstruct(seen, task_of(USERS))
    well = replay.mismatch < 1e-3
    assert well.sum() > USERS / 4
    best = (replay.predicted - replay.correction)[well]
    assert (best - F.one_hot(truth[well], 2)).abs().mean() < 0.1
    assert (replay.correction[torch.arange(USERS), truth][well] < 0).all()  # the gradient prefers the truth


@pytest.mark.parametrize("soft", [True, False])
@pytest.mark.parametrize("kind", ["linear", "doubled"])
def test_the_way_down_is_that_of_the_double_backward(kind: str, soft: bool) -> None:
    head, weights, _, _, gradient = lone(kind)
    own = {name: slope[0] for name, slope in gradient.items()}
    vector = Keys.seed(3).normal(4).requires_grad_()
    label = Keys.seed(4).normal(3).requires_grad_()
    leaves = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
    logits = torch.func.functional_call(head.module, leaves, (vector[None],))[0]
    loss = -((label.softmax(0) if soft else label) * logits.log_softmax(0)).sum()
    slope = torch.autograd.grad(loss, list(leaves.values()), create_graph=True)
    off = sum(((a - b) ** 2).sum() for a, b in zip(slope, own.values(), strict=True))
    off = off / sum((b**2).sum() for b in own.values())
    expected = (*torch.autograd.grad(off, (vector, label)), off)
    way = way_down(head, weights, {name: slope[:1] for name, slope in gradient.items()}, soft_label=soft)
    found = way(vector.detach()[None], label.detach()[None], Keys.seed(0).fold(torch.arange(1)))
    for got, want in zip(found, expected, strict=True):
        torch.testing.assert_close(got[0], want.detach())


@pytest.mark.parametrize(("kind", "outer"), [("linear", True), ("doubled", False)])
def test_the_first_matrix_is_made_only_where_it_must_be(
    kind: str, outer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, weights, vector, _, gradient = lone(kind)
    held: list[Tensor] = []

    def noting(slopes: Params) -> Tensor:
        held.extend(slopes.values())
        return square_norm(slopes)

    monkeypatch.setattr(matching, "square_norm", noting)
    way = matching.way_down(head, weights, gradient, soft_label=True)
    way(vector, Keys.seed(1).normal(6, 3), Keys.seed(0).fold(torch.arange(6)))
    matrix = weights[head.first.weight].shape
    assert any(slope.shape[-2:] == matrix for slope in held) != outer


@pytest.mark.parametrize("attack", [pytest.param(DLG(), marks=pytest.mark.slow), iDLG()], ids=["DLG", "iDLG"])
def test_the_label_that_was_used_is_found_and_not_the_truth(attack: Attack) -> None:
    watched = Watched(lies=0.3)
    seen, truth = seen_after(USERS, watched), truth_of(USERS)
    honest = float((watched.told(truth) == truth).double().mean())
    assert 0.5 < honest < 0.9
    scores = attack.infer(seen, task_of(USERS))
    assert share_right(scores, watched.told(truth)) >= 0.95
    assert abs(share_right(scores, truth) - honest) <= 0.05


@pytest.mark.parametrize("protocol", [GRADIENTS, WEIGHTS], ids=["gradients", "weights"])
@pytest.mark.parametrize("attack", [DLG(steps=30), iDLG(), iDLG(bias=False)], ids=["DLG", "iDLG", "rows"])
def test_a_gradient_of_zeros_tells_nothing(attack: Attack, protocol: FedAvg) -> None:
    seen = seen_after(20, Watched(), Muffled(weights=protocol is WEIGHTS), protocol=protocol)
    scores = attack.infer(seen, task_of(20))
    assert torch.equal(scores, scores[:1, :1].expand(20, 2))


def test_noise_brings_the_attacks_to_chance() -> None:
    seen, truth = seen_after(USERS, Watched(), Muffled(keep=1.0, noise=30.0)), truth_of(USERS)
    for attack in (DLG(starts=(1.0,), steps=100), iDLG(), iDLG(bias=False)):
        right = share_right(attack.infer(seen, task_of(USERS)), truth)
        assert abs(right - 0.5) < 3 * math.sqrt(0.25 / USERS)


def test_a_head_that_draws_keeps_the_sign_of_its_gradient_to_itself() -> None:
    seen, truth = seen_after(600, Watched(kind="noisy")), truth_of(600)
    right = share_right(iDLG().infer(seen, task_of(600)), truth)
    expected = 0.5 * (1 + math.erf(2 / math.sqrt(2 * 2.0) / math.sqrt(2)))  # Φ(2 / √(2λ)), λ = 2
    assert abs(right - expected) < 3 * math.sqrt(0.84 * 0.16 / 600)


def test_dlg_replays_a_head_that_draws() -> None:
    seen = seen_after(40, Watched(kind="noisy"))
    replay = DLG(steps=30).reconstruct(seen, task_of(40))
    assert all(part.isfinite().all() for part in replay)
    assert replay.predicted.shape == replay.correction.shape == (40, 2)
    assert torch.allclose(replay.predicted.sum(1), torch.ones(40))
    assert float(replay.mismatch.median()) < 1  # nearer than an empty gradient


def test_the_same_seed_finds_the_same() -> None:
    attack = DLG(starts=(0.3,), steps=20)
    first, again = (seen_after(20, Watched(), chunk=chunk) for chunk in (20, 20))
    scores = attack.infer(first, task_of(20))
    assert torch.equal(scores, attack.infer(again, task_of(20)))
    assert torch.equal(scores, attack.infer(first, task_of(20, seed=1)))  # no label is needed: one search
    assert not torch.equal(scores, replace(attack, seed=1).infer(first, task_of(20)))


def test_users_come_in_blocks_whatever_the_chunks() -> None:
    gradient = torch.arange(10.0)[:, None]
    chunks = [Slopes(torch.arange(10)[a:b], {}, {"w": gradient[a:b]}) for a, b in ((0, 3), (3, 9), (9, 10))]
    for size in (1, 4, 10, 99):
        found = list(blocks(chunks, size, 99))
        assert torch.equal(torch.cat([block.user for block in found]), torch.arange(10))
        assert torch.equal(torch.cat([block.gradient["w"] for block in found]), gradient)
        assert [len(block.user) for block in found[:-1]] == [size] * (len(found) - 1)
    assert list(blocks([], 4, 99)) == []


def test_an_update_over_the_rate_is_the_gradient() -> None:
    by_gradient = next(slopes(seen_after(20, Watched(), protocol=GRADIENTS, rounds=0, chunk=99), "adversary"))
    by_update = next(slopes(seen_after(20, Watched(), protocol=WEIGHTS, rounds=0, chunk=99), "adversary"))
    assert torch.equal(by_gradient.user, by_update.user)
    for name, slope in by_gradient.gradient.items():
        torch.testing.assert_close(by_update.gradient[name], slope, atol=1e-5, rtol=1e-3)


def test_a_user_without_an_upload_has_even_scores() -> None:
    seen = seen_after(20, Watched())
    assert seen.public is not None
    lost = Seen(seen.public, lambda *parts: iter(list(seen.probe())[:0]))
    assert (DLG().infer(lost, task_of(20)) == 0.5).all()
    assert (iDLG().infer(lost, task_of(20)) == 0).all()


@pytest.mark.parametrize("attack", [DLG(), iDLG()], ids=["DLG", "iDLG"])
def test_what_cannot_be_attacked_is_refused(attack: Attack) -> None:
    seen = seen_after(20, Watched(), rounds=0)
    with pytest.raises(BadInput, match=r'"adversary" tells 2 classes apart, age has 3'):
        attack.infer(seen, task_of(20, "age"))
    assert not attack.answers(seen, task_of(20, "age"))
    many = seen_after(20, Watched(), clients=silos(world(20), 4), rounds=0)
    with pytest.raises(BadInput, match="holds up to 5 users"):
        attack.infer(many, task_of(20))
    with pytest.raises(BadInput, match="no uploads"):
        attack.infer(Seen.of_vectors(torch.zeros(20, 4)), task_of(20))
    assert not attack.answers(Seen.of_vectors(torch.zeros(20, 4)), task_of(20))


@pytest.mark.parametrize(
    ("part", "what"),
    [("adversry", 'did you mean "adversary"'), ("user", "a table of users"), ("item", "a table of items")],
)
def test_a_part_must_be_a_shared_head(part: str, what: str) -> None:
    seen = seen_after(20, Watched(), rounds=0)
    with pytest.raises(BadInput, match=what):
        iDLG(part=part).infer(seen, task_of(20))


def test_a_part_that_is_no_classifier_is_refused() -> None:
    from tests.hooks import Idle

    seen = seen_after(20, Idle(), rounds=0)
    with pytest.raises(BadInput, match='"idle" is no classifier'):
        iDLG(part="idle").infer(seen, task_of(20))


def test_any_attribute_with_as_many_classes_is_answered() -> None:
    seen, other = seen_after(20, Watched(), rounds=0), Task(torch.full((20,), -1), 2, 0, "left-handed")
    assert iDLG().answers(seen, other)


def test_the_catalogue_has_both() -> None:
    assert (find("attacks", "dlg"), find("attacks", "iDLG")) == (DLG, iDLG)
    assert build("attacks", "DLG", {"starts": [1.0], "soft_label": False}) == DLG(
        starts=(1.0,), soft_label=False
    )
    assert all(option.doc for option in options(DLG).values())
    for wrong in ({"steps": 0}, {"starts": []}, {"starts": [-1.0]}):
        with pytest.raises(BadInput):
            build("attacks", "DLG", wrong)
