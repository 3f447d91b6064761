"""Perceptron: the neural attacker, in a form that trains many nets at once.

An audit asks for several attributes, seeds and folds. Their nets have the same layers, so they are one
stack of weights ``[nets, in, out]`` and one batched product; each learns what it would learn alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import pairwise
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from veilrec.attacks.common.estimators import Scale
from veilrec.base.keys import Keys
from veilrec.base.steps import Stepper

__all__ = ["Perceptron", "alike", "learn"]

CHUNK = 8192  # users that are scored at a time
BLOCK = 1 << 17  # weights of a net that step at a time on a CPU: what a step needs of them fits a cache
Rows = Sequence[tuple[Tensor, Tensor]]


@dataclass(eq=False)
class Perceptron:
    """A multilayer perceptron, scikit-learn shaped; Adam on all rows at once, unless told otherwise.

    The penalty is what makes it strong with few users: a net with one hidden layer then prefers few
    directions, and finds one telling column among many as well as a leak spread over all of them. (Deeper
    nets need a smaller one.) A net that diverges stays what it was in its last finite epoch.

    Attributes:
        hidden: Widths of the hidden layers; a float is a share of the input's width.
        slope: Of the activation below zero: 0 is ReLU, more is LeakyReLU.
        dropout: Share dropped after each hidden layer; none after those not named.
        rate: Learning rate.
        momentum: Of SGD; None for Adam.
        decay: Weight of the sum of squared weights in the loss; None for 1/√rows.
        epochs: Passes over the rows.
        batch: Rows a step; 0 for all.
        scaled: Whether columns are standardised, over the rows to learn from.
        values: Whether to learn values, by squared error, rather than classes.
        random_state: Of the first weights, the batches, and what is dropped.
    """

    hidden: Sequence[int | float] = (64,)
    _: KW_ONLY
    slope: float = 0.0
    dropout: Sequence[float] = ()
    rate: float = 0.01
    momentum: float | None = None
    decay: float | None = None
    epochs: int = 100
    batch: int = 0
    scaled: bool = True
    values: bool = False
    random_state: int = 0
    classes_: Tensor = field(init=False, repr=False)  # [k] the classes seen
    layers_: list[tuple[Tensor, Tensor]] = field(
        init=False, repr=False
    )  # weight [1, in, out], bias [1, 1, out]

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from ``X [n, width]`` and ``y [n]``."""
        learn([self], [(torch.as_tensor(X), torch.as_tensor(y))])
        return self

    def fit_staged(self, X: Any, y: Any, others: Any) -> Iterator[Any]:
        """Learn, and say after each epoch what `others` are: ``[n, classes seen]``, or values ``[n]``."""
        for _ in _learning([self], [(torch.as_tensor(X), torch.as_tensor(y))]):
            yield self.predict(others) if self.values else self.predict_proba(others)

    def predict_proba(self, X: Any) -> Any:
        """``[n, classes seen]`` probabilities, in the order of ``classes_``."""
        return self._output(torch.as_tensor(X)).double().softmax(1).numpy(force=True)

    def predict(self, X: Any) -> Any:
        """``[n]`` the values."""
        found = self._output(torch.as_tensor(X))[:, 0].double()
        return (found * self.spread_ + self.mean_).numpy(force=True)

    @torch.no_grad()
    def _output(self, x: Tensor) -> Tensor:
        parts = [_forward(self.layers_, self._shown(part)[None], self.slope)[0] for part in x.split(CHUNK)]
        return torch.cat(parts).nan_to_num()  # where inputs are too large for float32

    def _shown(self, x: Tensor) -> Tensor:
        return (self.scale_(x) if self.scaled else x).float()

    def _measure(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Fit the scales to the rows to learn from; what is shown of them, ``[n, width]`` and ``[n]``."""
        self.scale_ = Scale(x)
        if self.values:
            self.mean_, self.spread_ = float(y.double().mean()), float(y.double().std(correction=0)) or 1.0
            return self._shown(x), ((y.double() - self.mean_) / self.spread_).float()
        self.classes_, place = y.unique(return_inverse=True)
        return self._shown(x), place


def alike(nets: Sequence[Perceptron], sizes: Sequence[int]) -> list[list[int]]:
    """Groups of nets that may form one stack: with the same settings, and as many steps an epoch."""
    groups: dict[Any, list[int]] = {}
    for place, (net, rows) in enumerate(zip(nets, sizes, strict=True)):
        settings = repr(replace(net, random_state=0))
        groups.setdefault((settings, math.ceil(rows / (net.batch or rows))), []).append(place)
    return list(groups.values())


def learn(nets: Sequence[Perceptron], rows: Rows) -> None:
    """Train nets that are `alike`, all at once, each on rows ``[n, width]`` and ``[n]`` of its own."""
    for _ in _learning(nets, rows):
        pass


def _learning(nets: Sequence[Perceptron], rows: Rows) -> Iterator[None]:
    """One epoch after the other; the nets hold what they have learned so far."""
    stack = _Stack(nets, [net._measure(x, y) for net, (x, y) in zip(nets, rows, strict=True)])
    for epoch in range(nets[0].epochs):
        stack.epoch(epoch)
        for place, net in enumerate(nets):
            *hidden, (weight, bias) = stack.layers(stack.kept[place : place + 1])
            own = 1 if net.values else len(net.classes_)
            net.layers_ = [*hidden, (weight[..., :own], bias[..., :own])]
        yield


class _Stack:
    """Nets in training: a row of weights each, ``[nets, weights]``; users padded to ``[nets, n, width]``."""

    def __init__(self, nets: Sequence[Perceptron], rows: Rows) -> None:
        self.net = net = nets[0]
        self.x = pad_sequence([x for x, _ in rows], batch_first=True)
        self.y = pad_sequence([y for _, y in rows], batch_first=True)
        device = self.x.device
        self.keys = Keys(torch.stack([Keys.seed(each.random_state, device).value for each in nets]))
        size = torch.tensor([len(y) for _, y in rows], device=device)[:, None]
        self.taught = torch.arange(self.y.shape[1], device=device) < size  # [nets, n]
        outputs = torch.tensor([1 if net.values else len(each.classes_) for each in nets], device=device)
        self.unused = torch.arange(int(outputs.max()), device=device) >= outputs[:, None, None]
        self.widths = self._widths(int(outputs.max()))
        self.weights, self.decay = self._first()
        self.leaves = [leaf.requires_grad_() for pair in self.layers(self.weights) for leaf in pair]
        kind, momentum = ("adam", 0.0) if net.momentum is None else ("sgd", net.momentum)
        self.stepper = Stepper(kind, net.rate, momentum)  # type: ignore[arg-type]  # one of the two
        self.block = BLOCK if device.type == "cpu" else self.weights.shape[1]
        self.blocks = {str(place): some for place, some in enumerate(self.weights.split(self.block, 1))}
        self.state = self.stepper.fresh(self.blocks)
        self.kept = self.weights.clone()

    def _widths(self, outputs: int) -> list[int]:
        width = self.x.shape[2]
        hidden = [round(h * width) if isinstance(h, float) else h for h in self.net.hidden]
        return [width, *(max(1, h) for h in hidden), outputs]

    def _first(self) -> tuple[Tensor, Tensor]:
        """Weights and biases uniform within 1/√inputs, as torch's own layers have them; and their decay."""
        weights, decay = [], []
        rate = (
            1 / self.taught.sum(1).sqrt() if self.net.decay is None else self.x.new_tensor([self.net.decay])
        )
        for layer, (into, out) in enumerate(pairwise(self.widths)):
            keys, bound = self.keys.fold(layer), 1 / math.sqrt(into)
            # The outputs lead, because a shorter axis there draws the same numbers.
            drawn = keys.fold("weight").uniform(out, into).transpose(1, 2).flatten(1)
            weights += [
                drawn.mul(2).sub(1).mul(bound),
                keys.fold("bias").uniform(out).mul(2).sub(1).mul(bound),
            ]
            decay += [(2 * rate)[:, None].expand(-1, into * out), rate.new_zeros(len(rate), out)]
        return torch.cat(weights, 1), torch.cat(decay, 1)

    def layers(self, weights: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Views of ``[nets, weights]``: of each layer weight ``[nets, in, out]``, bias ``[nets, 1, out]``."""
        sizes = [size for into, out in pairwise(self.widths) for size in (into * out, out)]
        parts = weights.detach().split(sizes, 1)
        both = zip(parts[::2], parts[1::2], self.widths[1:], strict=True)
        return [(weight.unflatten(1, (-1, out)), bias[:, None]) for weight, bias, out in both]

    def epoch(self, number: int) -> None:
        """One pass over the rows. A net is kept as it then is, unless it diverged."""
        keys = self.keys.fold("epoch").fold(number)
        if not self.net.batch:
            self._step(self.x, self.y, self.taught, keys)
        else:
            steps = math.ceil(int(self.taught.sum(1).max()) / self.net.batch)
            order = _shuffled(self.taught, keys.fold("order"))
            for step, some in enumerate(order.split(self.net.batch, 1)[:steps]):
                x = self.x.gather(1, some[..., None].expand(*some.shape, self.x.shape[2]))
                self._step(x, self.y.gather(1, some), self.taught.gather(1, some), keys, step)
        finite = self.weights.isfinite().all(1, keepdim=True)
        self.kept = torch.where(finite, self.weights, self.kept)

    def _step(self, x: Tensor, y: Tensor, counts: Tensor, keys: Keys, step: int = 0) -> None:
        drops = [
            (keys.fold(f"drop {place}").fold(step), share) if share else None
            for place, share in enumerate(self.net.dropout)
        ]
        layers = list(zip(self.leaves[::2], self.leaves[1::2], strict=True))
        output = _forward(layers, x, self.net.slope, drops)
        found = torch.autograd.grad(self._loss(output, y, counts).sum(), self.leaves)
        gradient = torch.cat([part.flatten(1) for part in found], 1)
        if self.net.decay != 0:
            gradient.addcmul_(self.weights, self.decay)
        slopes = dict(zip(self.blocks, gradient.split(self.block, 1), strict=True))
        self.stepper.step(self.blocks, slopes, self.state)

    def _loss(self, output: Tensor, y: Tensor, counts: Tensor) -> Tensor:
        """``[nets]`` the mean loss over the rows that count, of outputs ``[nets, n, outputs]``."""
        if self.net.values:
            lost = (output[..., 0] - y).square()
        else:
            said = output.masked_fill(self.unused, -math.inf)
            lost = F.cross_entropy(said.flatten(0, 1), y.flatten(), reduction="none").reshape(y.shape)
        return (lost * counts).sum(1) / counts.sum(1)


def _forward(
    layers: Sequence[tuple[Tensor, Tensor]],
    x: Tensor,
    slope: float,
    drops: Sequence[tuple[Keys, float] | None] = (),
) -> Tensor:
    """``[nets, n, width]`` to ``[nets, n, outputs]``; `drops` says what to drop after each hidden layer."""
    *hidden, (weight, bias) = layers
    for place, (inner, shift) in enumerate(hidden):
        x = torch.baddbmm(shift, x, inner)
        x = F.leaky_relu(x, slope) if slope else x.relu()
        drop = drops[place] if place < len(drops) else None
        x = x if drop is None else x * _stays(*drop, x.shape[1], x.shape[2])
    return torch.baddbmm(bias, x, weight)


def _stays(keys: Keys, share: float, n: int, width: int) -> Tensor:
    """``[nets, n, width]`` 0 for what is dropped, else as much more as keeps the mean; 16 bits a draw."""
    bits = keys.words(n, -(-width // 4)).view(torch.int16)[..., :width]
    return (bits >= round(share * 2**16) - 2**15).float().div_(1 - share)


def _shuffled(mask: Tensor, keys: Keys) -> Tensor:
    """``[nets, n]`` an order in which the rows under the mask come first, at random."""
    words = keys.words(mask.shape[1]).masked_fill(~mask, torch.iinfo(torch.int64).max)
    return words.argsort(dim=1, stable=True)
