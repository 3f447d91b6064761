"""The careful loop does the round it claims to do: it agrees with a reference that is slow and obvious."""

from __future__ import annotations

import copy
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benchmarks import fedncf, loop, worlds
from benchmarks.examples import PooledSampler, Sampler
from benchmarks.pool import Pool

WORLD = worlds.make(worlds.Shape(users=9, items=700, events=1_100), seed=3)
CLIENTS = range(WORLD.shape.users)


class Whole(nn.Module):
    """FedNCF with a whole item table and modules for layers, as a first tutorial would write it."""

    def __init__(self, weights: fedncf.Weights, user: Tensor) -> None:
        super().__init__()
        self.user = nn.Parameter(user.clone())
        self.item = nn.Embedding.from_pretrained(weights.item.clone(), freeze=False)
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(fedncf.HEAD):
            layers += [nn.Linear(inputs, outputs, dtype=user.dtype), nn.ReLU()]
        self.head = nn.Sequential(*layers[:-1])
        for parameter, value in zip(self.head.parameters(), weights.head, strict=True):
            parameter.data = value.clone()

    def forward(self, items: Tensor) -> Tensor:
        rows = self.item(items)
        pairs = torch.cat([self.user.expand(*items.shape, -1), rows], dim=-1)
        logits: Tensor = self.head(pairs).squeeze(-1)
        return logits


def reference_round(weights: fedncf.Weights, users: Tensor, round_number: int) -> list[Whole]:
    """Every client's whole model after a local epoch."""
    sampler, models = Sampler(WORLD), []
    for client in CLIENTS:
        model = Whole(weights, users[client])
        optimiser = torch.optim.SGD(model.parameters(), lr=fedncf.RATE)
        for batch in sampler.draw(round_number, client).split(fedncf.BATCH):
            target = torch.zeros(batch.shape, dtype=users.dtype)
            target[:, 0] = 1
            optimiser.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(model(batch), target).backward()
            optimiser.step()
        models.append(model)
    return models


def mean_of(models: list[Whole]) -> fedncf.Weights:
    """The server's mean of whole models."""
    tables = [[model.item.weight, *model.head.parameters()] for model in models]
    means = [torch.stack(same).mean(dim=0).detach() for same in zip(*tables, strict=True)]
    return fedncf.Weights(means[0], tuple(means[1:]))


def fresh(tuned: bool = False) -> loop.Loop:
    weights = fedncf.first_weights(WORLD, torch.float64)
    users = fedncf.first_users(WORLD, torch.float64)
    return loop.Loop(WORLD, weights, users, loop.zeros_like(weights), tuned)


def assert_close(found: fedncf.Weights, wanted: fedncf.Weights, within: float) -> None:
    for a, b in zip((found.item, *found.head), (wanted.item, *wanted.head), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=within)


@pytest.mark.parametrize("tuned", [False, True])
def test_rounds_equal_the_reference(tuned: bool) -> None:
    trained = fresh(tuned)
    assert max(len(WORLD.positives(client)) for client in CLIENTS) > fedncf.BATCH  # several local steps
    for number in range(2):
        models = reference_round(copy.deepcopy(trained.weights), trained.users.clone(), number)
        before = copy.deepcopy(trained.weights)
        trained.train(number, CLIENTS)
        loop.average(trained.weights, [trained.change], len(CLIENTS))
        assert_close(trained.weights, mean_of(models), within=1e-9)
        for client, model in enumerate(models):
            torch.testing.assert_close(trained.users[client], model.user.data, rtol=0, atol=1e-9)
        assert fedncf.moved(before, trained.weights) > 1e-4  # so that 1e-9 says something


def test_an_upload_holds_the_touched_rows_alone() -> None:
    trained = fresh()
    examples = trained.sampler.draw(0, 4)
    upload = trained.epoch(4, examples)
    assert upload.touched.tolist() == sorted(set(examples.flatten().tolist()))
    assert upload.item.shape == (len(upload.touched), fedncf.WIDTH)


def test_work_is_shared_out_once_and_evenly() -> None:
    shares = loop.share_out(WORLD, 2)
    assert sorted(shares[0] + shares[1]) == list(CLIENTS)
    large = worlds.make("ml-100k")
    events = [sum(len(large.positives(client)) for client in share) for share in loop.share_out(large, 2)]
    assert abs(events[0] - events[1]) < 0.01 * sum(events)


@pytest.mark.slow
def test_two_processes_arrive_where_one_does() -> None:
    alone = fresh()
    alone.train(0, CLIENTS)
    loop.average(alone.weights, [alone.change], len(CLIENTS))
    other, changes = fresh(), [loop.zeros_like(alone.weights) for _ in range(2)]
    for held in (other.weights, *changes):
        for tensor in (held.item, *held.head):
            tensor.share_memory_()
    other.users.share_memory_()
    with Pool(loop.Loop, [(WORLD, other.weights, other.users, change) for change in changes]) as pool:
        pool.call("train", [(0, share) for share in loop.share_out(WORLD, 2)])
        loop.average(other.weights, changes, len(CLIENTS))
        assert_close(other.weights, alone.weights, within=1e-12)
        torch.testing.assert_close(other.users, alone.users, rtol=0, atol=1e-12)
        with pytest.raises(RuntimeError, match="a worker failed in 'train': IndexError"):
            pool.call("train", [(0, [99]), (0, [])])


@pytest.mark.parametrize("client", CLIENTS)
def test_negatives_are_uniform_over_untouched_items(client: int) -> None:
    sampler, positives = Sampler(WORLD), set(WORLD.positives(client).tolist())
    first, second = sampler.draw(0, client), sampler.draw(1, client)
    assert set(first[:, 0].tolist()) == positives == set(second[:, 0].tolist())
    assert not positives & set(first[:, 1:].flatten().tolist())
    assert first.tolist() == sampler.draw(0, client).tolist() != second.tolist()
    drawn = torch.cat([sampler.draw(number, client)[:, 1:].flatten() for number in range(300)])
    counts = torch.bincount(drawn, minlength=WORLD.shape.items)
    untouched = [item for item in range(WORLD.shape.items) if item not in positives]
    expected = len(drawn) / len(untouched)
    assert counts[untouched].min() > 0
    assert float(((counts[untouched] - expected) ** 2).mean()) == pytest.approx(expected, rel=0.4)


def test_pooled_negatives_are_untouched_too() -> None:
    user, items = PooledSampler(WORLD).draw(5)
    for client in CLIENTS:
        mine = items[user == client]
        positives = set(WORLD.positives(client).tolist())
        assert set(mine[:, 0].tolist()) == positives
        assert not positives & set(mine[:, 1:].flatten().tolist())
        assert mine[:, 1:].max() < WORLD.shape.items
    assert items[:, 1:].unique().numel() > 0.95 * WORLD.shape.items


def test_full_ranking_leaves_out_training_items_and_halves_ties() -> None:
    score = torch.arange(700, dtype=torch.float64)
    positives = torch.arange(690, 700)  # the ten best, all seen
    assert fedncf.hit(score.clone(), positives, held=685) == 1.0
    assert fedncf.hit(score.clone(), positives, held=600) == 0.0
    assert fedncf.hit(torch.zeros(110), torch.arange(10), held=50) == pytest.approx(0.1)


@pytest.mark.parametrize("shape", ["tiny", "ml-100k"])
def test_worlds_are_long_tailed_and_repeatable(shape: str) -> None:
    world, again = worlds.make(shape), worlds.make(shape)
    assert world.digest() == again.digest() != worlds.make(shape, seed=1).digest()
    counts = np.diff(world.start)
    assert counts.sum() == len(world.item) == world.shape.events
    assert counts.min() >= worlds.FEWEST
    assert counts.max() > 3 * np.median(counts)
    for user in range(world.shape.users):
        mine = world.positives(user)
        assert (np.diff(mine) > 0).all()
        assert world.held[user] not in mine
    popularity = np.sort(np.bincount(world.item, minlength=world.shape.items))
    assert popularity[-world.shape.items // 10 :].sum() > 2 * 0.1 * popularity.sum()
