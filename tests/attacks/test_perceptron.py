"""The perceptron: many nets at once are each what they are alone."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.leaks import auc, balanced, planted
from veilrec.attacks.common.perceptron import Perceptron, alike, learn
from veilrec.base.keys import Keys

KINDS: dict[str, dict[str, object]] = {
    "plain": {},
    "deep": {"hidden": (1.0, 12, 0.5), "slope": 0.2, "decay": 0.0},
    "momentum": {"momentum": 0.9, "rate": 0.05, "decay": 0.0},
    "dropout": {"hidden": (12, 7), "dropout": (0.0, 0.5), "decay": 0.0},
    "batches": {"batch": 16, "epochs": 10},
    "raw": {"scaled": False},
}
EVERY = pytest.mark.parametrize("kind", KINDS)


def net(kind: str = "plain", seed: int = 0, **more: object) -> Perceptron:
    settings = {"hidden": (16,), "epochs": 20, **KINDS[kind], **more, "random_state": seed}
    return Perceptron(**settings)  # type: ignore[arg-type]  # as a user would give them


def rows(n: int, classes: int, seed: int = 0, width: int = 9) -> tuple[Tensor, Tensor]:
    keys = Keys.seed(seed)
    return keys.normal(n, width), keys.fold("label").integers(classes, n)


@EVERY
def test_nets_learn_together_what_they_learn_alone(kind: str) -> None:
    """Rows are padded where a net has fewer, outputs where it has fewer classes."""
    sizes = [(60, 2), (57, 5), (62, 3)]
    work = [rows(n, classes, seed) for seed, (n, classes) in enumerate(sizes)]
    together = [net(kind, seed) for seed in range(3)]
    assert alike(together, [n for n, _ in sizes]) == [[0, 1, 2]]
    learn(together, work)
    for seed, (x, y) in enumerate(work):
        alone = net(kind, seed).fit(x, y)
        assert np.abs(alone.predict_proba(x) - together[seed].predict_proba(x)).max() < 1e-4


def test_values_are_learned_together_too() -> None:
    work = [(x, x[:, 0].double() * 10 + 40) for x, _ in (rows(60, 2), rows(50, 2, 1))]
    together = [net(seed=seed, values=True) for seed in range(2)]
    learn(together, work)
    for seed, (x, y) in enumerate(work):
        alone = net(seed=seed, values=True).fit(x, y)
        assert np.abs(alone.predict(x) - together[seed].predict(x)).max() < 1e-3


@EVERY
def test_the_same_seed_gives_the_same_bits_and_another_does_not(kind: str) -> None:
    x, y = rows(50, 3)
    first, again, other = (net(kind, seed).fit(x, y).predict_proba(x) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_nets_that_differ_are_not_one_stack() -> None:
    nets = [net(), net(seed=1), net(rate=0.1), net("batches"), net("batches")]
    assert alike(nets, [60, 40, 60, 60, 40]) == [[0, 1], [2], [3], [4]]  # 60 rows are four batches, 40 three


def test_it_is_scikit_learn_shaped() -> None:
    one = net(seed=7)
    assert not [name for name in vars(one) if name.endswith("_")]
    x, y = rows(40, 3)
    one.fit(x.numpy(), y.numpy() + 5)
    assert set(one.classes_.tolist()) == {5, 6, 7}
    assert np.allclose(one.predict_proba(x.numpy()).sum(1), 1)


def test_the_first_step_is_the_gradient_of_the_loss_and_the_penalty() -> None:
    """Against torch's own layers and loss, one step of SGD."""
    x, y = rows(30, 3, width=4)
    one = net(hidden=(5,), momentum=0.0, rate=0.1, decay=0.3, epochs=1, scaled=False)
    before = net(hidden=(5,), momentum=0.0, rate=0.0, decay=0.3, epochs=1, scaled=False).fit(x, y).layers_
    layers = [torch.nn.Linear(*weight.shape[1:]) for weight, _ in before]
    for layer, (weight, bias) in zip(layers, before, strict=True):
        layer.weight.data, layer.bias.data = weight[0].T.clone(), bias[0, 0].clone()
    loss = torch.nn.functional.cross_entropy(layers[1](layers[0](x).relu()), y)
    loss = loss + 0.3 * sum(layer.weight.square().sum() for layer in layers)
    loss.backward()
    for layer, (weight, bias) in zip(layers, one.fit(x, y).layers_, strict=True):
        assert layer.weight.grad is not None
        assert layer.bias.grad is not None
        assert torch.allclose(weight[0].T, layer.weight - 0.1 * layer.weight.grad, atol=1e-6)
        assert torch.allclose(bias[0, 0], layer.bias - 0.1 * layer.bias.grad, atol=1e-6)


def test_stages_end_in_the_answer_and_differ_before_it() -> None:
    x, y = rows(50, 3)
    stages = list(net().fit_staged(x, y, x))
    assert len(stages) == 20
    assert np.array_equal(stages[-1], net().fit(x, y).predict_proba(x))
    assert all(not np.array_equal(one, after) for one, after in pairwise(stages))


def test_dropped_shares_are_as_told() -> None:
    from veilrec.attacks.common.perceptron import _stays

    for share in (0.1, 0.3, 0.5):
        stays = _stays(Keys(torch.tensor([1, 2])), share, 500, 33)
        assert stays.shape == (2, 500, 33)
        assert abs(float((stays == 0).double().mean()) - share) < 0.01
        assert abs(float(stays.mean()) - 1) < 0.02
        assert not torch.equal(stays[0], stays[1])


def test_the_rows_of_others_never_count() -> None:
    """What is scored later does not enter the scale."""
    x, y = rows(50, 2)
    one = net().fit(x, y)
    few = one.predict_proba(x[:10])
    assert np.abs(one.predict_proba(torch.cat([x[:10], 1e6 * x[10:]]))[:10] - few).max() < 1e-6


def test_it_finds_one_column_among_many_and_what_no_line_separates() -> None:
    plant = planted(3, users=1500, seed=1)
    said = torch.tensor(
        Perceptron().fit(plant.features[:300], plant.label[:300]).predict_proba(plant.features)
    )
    assert plant.auc(said) > 0.99
    x = Keys.seed(3).normal(3000, 8)
    crossed = (x[:, 0] * x[:, 1] > 0).long()
    said = torch.tensor(Perceptron().fit(x[:800], crossed[:800]).predict_proba(x[800:]))
    assert auc(crossed[800:], said) > 0.9
    assert balanced(crossed[800:], said) > 0.8


def test_values_come_back_in_their_own_units() -> None:
    x = Keys.seed(0).normal(600, 16)
    age = 40 + 12 * x[:, 3].double()
    told = Perceptron(values=True).fit(x[:300], age[:300]).predict(x[300:])
    assert np.corrcoef(told, age[300:])[0, 1] > 0.97
    assert abs(told.mean() - float(age[300:].mean())) < 1


@given(st.integers(1, 30), st.integers(1, 4), st.integers(1, 6), st.sampled_from(sorted(KINDS)))
def test_any_small_problem_has_a_finite_answer(n: int, classes: int, width: int, kind: str) -> None:
    x, y = rows(n, classes, width=width)
    x[:, 0] = 7.0
    said = net(kind, epochs=3).fit(x, y).predict_proba(x * 1e6)
    assert np.isfinite(said).all()
    assert np.allclose(said.sum(1), 1)
