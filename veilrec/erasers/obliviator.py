"""Obliviator: a network lowers every dependence on the attribute that a kernel can see, stage by stage.

Paper: Akbari, Afshari and Boddeti, "Obliviator Reveals the Cost of Nonlinear Guardedness in Concept Erasure",
NeurIPS 2025: eq. (8) → `_encoded`, eqs. (9)-(12) → `_freed`. Its output has a width of its own; the way back
to the space of the items, by regression out of fold, is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from veilrec.base.draws import Draws
from veilrec.base.keys import Keys
from veilrec.base.limits.bounds import Amount, Many, Width
from veilrec.base.params import Params
from veilrec.base.steps import Stepper
from veilrec.eraser import AttributeEraser, Request
from veilrec.erasers.common.fourier import FOLDS, Fourier, covariance, restored, typical, unit

__all__ = ["Obliviator"]

FIRST, LATER = 30, 25  # steps of the first stage and of each later one
RATE, DECAY = 5e-4, 1e-3
OF_INPUT, OF_STAGE = 0.2, 1.0  # how much the vectors and the last stage count among what is to be kept
KEPT_INPUT, KEPT_STAGE = 0.05, 0.1  # the same while the network learns
SEEN = 1e-4  # a direction of the features that covaries less with the attribute, beside the first, does not
LEAST = 1e-6  # a feature that tells less of what is to be kept, beside the first, is dropped


class View(NamedTuple):
    """Something that is to be kept: its features, and its weights in both parts of a stage."""

    features: Tensor
    while_learning: float
    while_choosing: float


@dataclass(frozen=True)
class Obliviator(AttributeEraser):
    """Stages of a network and an eigenvalue problem after which no kernel finds the attribute.

    Each stage trains a small network to lower the dependence on the attribute (HSIC) and to keep that on the
    vectors, then keeps the functions of its output that have no covariance with the attribute at all. With
    more `stages` less is left, of the attribute and of everything else. No label is needed to apply it.

    >>> gender = torch.arange(300) % 2
    >>> vectors = Keys.seed(0).normal(300, 32)
    >>> vectors[:, 0] += gender
    >>> request, draws = Request({"gender": gender}), Draws(Keys.seed(0))
    >>> after = Obliviator(stages=1, features=64, hidden=64).forget(vectors, request, draws)
    >>> [round(float(v[gender == 1, 0].mean() - v[gender == 0, 0].mean()), 1) for v in (vectors, after)]
    [1.3, -0.2]

    No covariance is left among those whom it learns from: who knows some labels finds the others turned
    round, as here, and the more surely, the fewer users there are.

    Attributes:
        attributes: Those to be forgotten; empty for every one that is asked for, in a run all with classes.
        parts: The parts of the model that hold the vectors; empty for all that have a row a user.
        stages: How often it begins anew with what the stage before has left: its strength.
        keep: How much keeping the vectors counts while a network learns; 1 is as printed, and a tenth of it
            was better on vectors of users.
        hidden: Width of the networks.
        features: Random features of the vectors; of the networks' outputs there are three quarters as many.
    """

    attributes: Sequence[str] = ()
    parts: Sequence[str] = ()
    stages: Many = 3
    keep: Amount = 0.1
    hidden: Width = 512
    features: Many = 1024

    def transform(self, vectors: Tensor, request: Request, draws: Draws) -> Tensor:
        for name in request.labels:
            fits, label = request.counts_in(name), request.labels[name]
            if len(label[fits].unique()) > 1:
                drawn = draws.fold(name).as_keys("network")
                vectors = self._without(vectors, label, fits, request.own_tags, drawn)
        return vectors

    def _without(self, vectors: Tensor, label: Tensor, fits: Tensor, tags: Tensor, keys: Keys) -> Tensor:
        """``[n, width]`` the vectors without one attribute, worked out in an order of the users' own."""
        lot = keys.fold("order").fold(tags).value
        order = lot.argsort()
        after = torch.empty_like(vectors)
        after[order] = self._ordered(vectors[order], label[order], fits[order], keys)
        return after

    def _ordered(self, vectors: Tensor, label: Tensor, fits: Tensor, keys: Keys) -> Tensor:
        spread = vectors[fits].std(0)
        scaled = (vectors - vectors[fits].mean(0)) / torch.where(spread > 0, spread, 1.0)
        rows, fold = unit(scaled.float()), torch.arange(len(vectors)) % FOLDS
        classes = functional.one_hot(label[fits]).float()
        first = self._features(keys.fold("input"), rows, fits, self.features)
        for stage in range(self.stages):
            own = keys.fold("stage").fold(stage)
            views = [View(first, KEPT_INPUT, OF_INPUT)]
            if stage:
                seen = self._features(own.fold("seen"), rows, fits)
                views.append(View(seen, KEPT_STAGE, OF_STAGE))
            encoded = self._encoded(rows, classes, views, fits, own, LATER if stage else FIRST)
            features = self._features(own.fold("freed"), encoded, fits)
            rows = _freed(features, classes, views, fits)
        scale = typical(rows[fits])
        back = Fourier.drawn(keys.fold("back"), rows.shape[1], count=self.features, scale=scale)
        return restored(rows, vectors, fits, fold, back)

    def _features(self, keys: Keys, rows: Tensor, fits: Tensor, count: int = 0) -> Tensor:
        """``[n, count]`` fresh random features; of what networks say, three quarters of all."""
        scale = typical(rows[fits])
        return Fourier.drawn(keys, rows.shape[1], count=count or 3 * self.features // 4, scale=scale)(rows)

    def _encoded(
        self, rows: Tensor, classes: Tensor, views: list[View], fits: Tensor, keys: Keys, steps: int
    ) -> Tensor:
        """``[n, hidden]`` outputs of a network trained to tell of the views, not of the classes: eq. (8)."""
        bound, stepper = rows.shape[1] ** -0.5, Stepper("adam", lr=RATE)
        shapes = {"weight": (1, rows.shape[1], self.hidden), "bias": (1, 1, self.hidden)}
        params = {name: (2 * keys.fold(name).uniform(*shape) - 1) * bound for name, shape in shapes.items()}
        state = stepper.fresh(params)
        kept = [(self.keep * view.while_learning, view.features[fits]) for view in views]
        for step in range(steps):
            leaves = {name: value.requires_grad_() for name, value in params.items()}
            out = _output(rows[fits], leaves)
            seen = self._features(keys.fold("step").fold(step), out, torch.ones(len(out), dtype=torch.bool))
            loss = covariance(seen, classes).square().sum()
            for share, view in kept:
                loss = loss - share * covariance(view, seen).square().sum()
            slopes = torch.autograd.grad(loss, list(leaves.values()))
            params = {name: value.detach() * (1 - RATE * DECAY) for name, value in leaves.items()}
            stepper.step(params, dict(zip(params, slopes, strict=True)), state)
        return _output(rows, params)


def _output(rows: Tensor, params: Params) -> Tensor:
    """``[n, hidden]`` what the network says of rows."""
    return unit(functional.silu(rows @ params["weight"][0] + params["bias"][0]))


def _freed(features: Tensor, classes: Tensor, views: list[View], fits: Tensor) -> Tensor:
    """``[n, kept]`` functions in the span of features, without covariance with the classes: eqs. (9)-(12)."""
    own = features[fits]
    left, size, _ = torch.linalg.svd(covariance(own, classes), full_matrices=False)
    told = left[:, size > SEEN * size[0]]
    free = torch.linalg.qr(told, mode="complete")[0][:, told.shape[1] :]
    total = own.new_zeros(free.shape[1], free.shape[1])
    for view in views:
        shared = covariance(view.features[fits], own) @ free
        square = shared.T @ shared
        total = total + view.while_choosing * square / torch.linalg.matrix_norm(square, 2)
    value, axis = torch.linalg.eigh(total)
    return unit((features - own.mean(0)) @ free @ axis[:, value > LEAST * value[-1]])
