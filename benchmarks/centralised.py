"""No federation at all: the same model and the same number of examples in ordinary mini-batches."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks import fedncf
from benchmarks.examples import PooledSampler
from benchmarks.measurement import Measurement, seconds
from benchmarks.worlds import World

BATCH = 4096  # examples a step


class Centralised:
    """A trainer that has every user's data, and so need not keep them apart."""

    def __init__(self, world: World) -> None:
        self.sampler = PooledSampler(world)
        weights = fedncf.first_weights(world)
        self.user = fedncf.first_users(world).requires_grad_()
        self.item = weights.item.requires_grad_()
        self.head = tuple(weight.requires_grad_() for weight in weights.head)

    def epoch(self, number: int) -> None:
        """Every event once, with negatives drawn anew."""
        user, items = self.sampler.draw(number)
        targets = fedncf.labels()[: items.shape[1]].repeat(len(user))
        user = user.repeat_interleave(items.shape[1])
        pieces = (user.split(BATCH), items.reshape(-1).split(BATCH), targets.split(BATCH))
        for some_users, some_items, some_targets in zip(*pieces, strict=True):
            self._step(some_users, some_items, some_targets)

    def _step(self, user: Tensor, item: Tensor, targets: Tensor) -> None:
        rows = [functional.embedding(user, self.user), functional.embedding(item, self.item)]
        logits = fedncf.scores_of_pairs(torch.cat(rows, dim=1), self.head)
        loss = functional.binary_cross_entropy_with_logits(logits, targets)
        leaves = (self.user, self.item, *self.head)
        gradients = torch.autograd.grad(loss, leaves)
        with torch.no_grad():
            for leaf, gradient in zip(leaves, gradients, strict=True):
                leaf.sub_(gradient, alpha=fedncf.RATE)


def measure(world: World, *, workers: int, rounds: int) -> Measurement:
    """Seconds an epoch, with `workers` threads inside torch; no ranking."""
    torch.set_num_threads(workers)
    trainer = Centralised(world)
    trainer.epoch(0)
    times = [seconds(partial(trainer.epoch, number)) for number in range(1, rounds + 1)]
    return Measurement(round_s=times, evaluate_s=None, clients=world.shape.users)
