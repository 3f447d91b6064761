"""The examples of a round: a user's positives in a new order, each with negatives drawn anew."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.fedncf import NEGATIVES
from benchmarks.worlds import World


class Sampler:
    """Draws the examples of one client, as a function of (round, client) alone.

    Negatives come without rejection: a number r below the count of untouched items stands for the
    r-th untouched item, which is r plus the number of positives that lie before it.
    """

    def __init__(self, world: World) -> None:
        self.items = world.shape.items
        self.positives = [torch.from_numpy(world.positives(user)) for user in range(world.shape.users)]
        self.before = [positives - torch.arange(len(positives)) for positives in self.positives]
        self.generator = torch.Generator()

    def draw(self, round_number: int, client: int) -> Tensor:
        """Item ids ``[n, 1 + NEGATIVES]``: a positive in the first column, then its negatives."""
        self.generator.manual_seed((round_number << 20) + client)
        positives = self.positives[client]
        count = len(positives)
        order = torch.randperm(count, generator=self.generator)
        rank = torch.randint(self.items - count, (count, NEGATIVES), generator=self.generator)
        negatives = rank + torch.searchsorted(self.before[client], rank, right=True)
        return torch.cat([positives[order].unsqueeze(1), negatives], dim=1)


class PooledSampler:
    """Draws the examples of all users at once, for a trainer that has all data in one place."""

    def __init__(self, world: World) -> None:
        self.items = world.shape.items
        start, self.positives = torch.from_numpy(world.start), torch.from_numpy(world.item)
        count = start.diff()
        self.user = torch.repeat_interleave(torch.arange(world.shape.users), count)
        self.untouched = (self.items - count)[self.user]  # [events]
        position = torch.arange(len(self.user)) - start[self.user]
        # one ascending table for all users: user u occupies [u · items, (u + 1) · items)
        self.before = self.user * self.items + self.positives - position
        self.start = start[self.user].unsqueeze(1)
        self.generator = torch.Generator()

    def draw(self, round_number: int) -> tuple[Tensor, Tensor]:
        """Users ``[events]`` and their items ``[events, 1 + NEGATIVES]``, in a new order."""
        self.generator.manual_seed(round_number << 20)
        uniform = torch.rand(len(self.user), NEGATIVES, generator=self.generator, dtype=torch.float64)
        rank = (uniform * self.untouched.unsqueeze(1)).long()
        place = (self.user * self.items).unsqueeze(1) + rank
        negatives = rank + torch.searchsorted(self.before, place, right=True) - self.start
        order = torch.randperm(len(self.user), generator=self.generator)
        return self.user[order], torch.cat([self.positives.unsqueeze(1), negatives], dim=1)[order]
