"""The careful loop: one client after the other in plain torch, in one process or shared by several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks import fedncf
from benchmarks.examples import Sampler
from benchmarks.fedncf import Weights
from benchmarks.measurement import Measurement, seconds
from benchmarks.pool import Pool
from benchmarks.worlds import World

Call = Callable[[str, Sequence[tuple[Any, ...]]], list[Any]]


def scores_plain(user: Tensor, table: Tensor, head: tuple[Tensor, ...], rows: Tensor) -> Tensor:
    """Logits of some rows of the table, each example by itself."""
    return fedncf.scores(user, functional.embedding(rows, table), head)


def scores_tuned(user: Tensor, table: Tensor, head: tuple[Tensor, ...], rows: Tensor) -> Tensor:
    """The same, with the user's half of the first layer done once, and repeated items scored once."""
    if len(table) <= len(rows):
        return fedncf.scores_folded(user, table, head)[rows]
    return fedncf.scores_folded(user, functional.embedding(rows, table), head)


class Upload(NamedTuple):
    """What one client hands over after a local epoch: its changes to the weights, touched rows only."""

    touched: Tensor  # [r] item ids
    item: Tensor  # [r, WIDTH]
    head: tuple[Tensor, ...]


def local_epoch(
    weights: Weights, user: Tensor, examples: Tensor, labels: Tensor, *, tuned: bool = False
) -> Upload:
    """One client's work in a round, in plain torch with a copy of the touched rows alone.

    Args:
        weights: What the server sent; only read.
        user: ``[WIDTH]``, the client's own vector; trained in place.
        examples: ``[n, 1 + NEGATIVES]`` item ids.
        labels: Targets of a full batch.
        tuned: Use what algebra allows: see `scores_tuned`.
    """
    touched, local = torch.unique(examples, return_inverse=True)
    before = weights.item[touched]
    leaves = [tensor.clone().requires_grad_() for tensor in (user, before, *weights.head)]
    for batch in local.split(fedncf.BATCH):
        user_vector, table, *head = leaves
        logits = (scores_tuned if tuned else scores_plain)(user_vector, table, tuple(head), batch.reshape(-1))
        loss = functional.binary_cross_entropy_with_logits(logits, labels[: len(logits)])
        gradients = torch.autograd.grad(loss, leaves)
        with torch.no_grad():
            for leaf, gradient in zip(leaves, gradients, strict=True):
                leaf.sub_(gradient, alpha=fedncf.RATE)
    with torch.no_grad():
        user.copy_(leaves[0])
        changes = tuple(after - start for after, start in zip(leaves[2:], weights.head, strict=True))
        return Upload(touched, leaves[1] - before, changes)


class Loop:
    """Some clients of a federation, trained one at a time.

    Attributes:
        weights: What the server sent; only read here.
        users: ``[users, WIDTH]`` user vectors, each kept by its client between rounds.
        change: Sum over the trained clients of what each would add to the weights.
    """

    def __init__(
        self, world: World, weights: Weights, users: Tensor, change: Weights, tuned: bool = False
    ) -> None:
        self.world, self.weights, self.users, self.change = world, weights, users, change
        self.sampler = Sampler(world)
        self.labels = fedncf.labels(users.dtype)
        self.tuned = tuned

    def train(self, round_number: int, clients: Sequence[int]) -> None:
        """One local epoch of every given client; leaves the sum of their changes in `change`."""
        for total in (self.change.item, *self.change.head):
            total.zero_()
        for client in clients:
            examples = self.sampler.draw(round_number, client)
            fold(self.change, self.epoch(client, examples))

    def epoch(self, client: int, examples: Tensor) -> Upload:
        """One local epoch of one client; its vector is trained in place."""
        return local_epoch(self.weights, self.users[client], examples, self.labels, tuned=self.tuned)

    @torch.no_grad()
    def hits(self, clients: Sequence[int]) -> float:
        """Full ranking, one client at a time: the sum of their hits."""
        total, scores = 0.0, fedncf.scores_folded if self.tuned else fedncf.scores
        for client in clients:
            score = scores(self.users[client], self.weights.item, self.weights.head)
            total += fedncf.hit(score, self.sampler.positives[client], int(self.world.held[client]))
        return total


def zeros_like(weights: Weights) -> Weights:
    """A place to sum changes in."""
    return Weights(torch.zeros_like(weights.item), tuple(torch.zeros_like(w) for w in weights.head))


def fold(total: Weights, upload: Upload) -> None:
    """Add one client's changes to a sum, in place."""
    total.item.index_add_(0, upload.touched, upload.item)
    for sum_so_far, change in zip(total.head, upload.head, strict=True):
        sum_so_far.add_(change)


def average(weights: Weights, changes: Sequence[Weights], clients: int) -> None:
    """The server's step, in place: add the mean over clients of their changes."""
    for change in changes:
        weights.item.add_(change.item, alpha=1 / clients)
        for weight, total in zip(weights.head, change.head, strict=True):
            weight.add_(total, alpha=1 / clients)


def share_out(world: World, workers: int) -> list[list[int]]:
    """Every client once, with nearly equal numbers of events for every worker."""
    by_size = sorted(
        range(world.shape.users), key=lambda user: int(world.start[user] - world.start[user + 1])
    )
    turns = [*range(workers), *reversed(range(workers))]  # there and back, so that nobody is always first
    shares: list[list[int]] = [[] for _ in range(workers)]
    for place, client in enumerate(by_size):
        shares[turns[place % len(turns)]].append(client)
    return shares


def measure(world: World, *, workers: int, rounds: int, tuned: bool = False) -> Measurement:
    """Seconds a round of all clients, and of a full ranking, with one or several processes."""
    torch.set_num_threads(1)
    weights, users = fedncf.first_weights(world), fedncf.first_users(world)
    if workers == 1:
        loop = Loop(world, weights, users, zeros_like(weights), tuned)
        return _timed(
            lambda method, some: [getattr(loop, method)(*some[0])], world, weights, [loop.change], rounds
        )
    changes = [zeros_like(weights) for _ in range(workers)]
    for held in (weights, *changes):
        for tensor in (held.item, *held.head):
            tensor.share_memory_()
    users.share_memory_()
    with Pool(Loop, [(world, weights, users, change, tuned) for change in changes]) as pool:
        measured = _timed(pool.call, world, weights, changes, rounds)
        measured["workers_mb"] = sum(pool.peaks_mb())
    return measured


def _timed(
    call: Call, world: World, weights: Weights, changes: Sequence[Weights], rounds: int
) -> Measurement:
    clients, shares = world.shape.users, share_out(world, len(changes))

    def one(number: int) -> None:
        call("train", [(number, share) for share in shares])
        average(weights, changes, clients)

    def evaluate() -> None:
        call("hits", [(share,) for share in shares])

    one(0)
    moved = fedncf.moved(fedncf.first_weights(world), weights)
    times = [seconds(partial(one, number)) for number in range(1, rounds + 1)]
    return Measurement(round_s=times, evaluate_s=seconds(evaluate), clients=clients, moved=moved)
