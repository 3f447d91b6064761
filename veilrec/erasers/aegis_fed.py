"""AegisFed: clients train on, and the Gaussians of classes are brought to that of all users between rounds.

Paper: Wu et al., "Post-training attribute unlearning in federated recommender systems", WWW 2025: Alg. 1 and
eq. (18), Aegis-Fed. There each local step goes down all three terms at once. The last two are steep where a
class has fewer users than columns, and no rate suits them and the first: here a client goes down the first
through its events, and then down the others, over all its users, at a rate that is lowered wherever it must.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from torch import Tensor

from veilrec.base.draws import Draws
from veilrec.base.limits.bounds import Amount, Many, PartShare, Rate, Rounds, Steps
from veilrec.erasers.aegis_cs import AegisCS
from veilrec.erasers.common.descent import UserCloud
from veilrec.erasers.common.rounds import Between, Present, RoundEraser
from veilrec.erasers.common.sums import Holder
from veilrec.wire import codec

__all__ = ["AegisFed"]


@dataclass(frozen=True)
class AegisFed(RoundEraser):
    """Rounds of training users' vectors, and of steps down β · drift + γ · the mean divergence of classes.

    With `statistics` of a silo's own, as printed, users of all silos together stay as far apart as silos are;
    with ``sums`` silos add up sums of each class in every round, and what they do follows from those.

    Two silos of six users, of whom nobody trains:

    >>> import torch
    >>> from veilrec.eraser import Request
    >>> vectors = torch.tensor([[-0.1], [0.0], [0.1], [0.2], [0.5], [0.8]], dtype=torch.float64)
    >>> silo = Present(vectors, vectors, Request({"gender": torch.tensor([0, 0, 0, 1, 1, 1])}))
    >>> after, up, down = AegisFed(statistics="sums", beta=0.0, cap=100).between([silo, silo], Draws())
    >>> [round(float(one[k : k + 3].mean()), 2) for one in after for k in (0, 3)], up > 0
    ([0.25, 0.25, 0.25, 0.25], True)

    Users without a label, and those of a class that has fewer than two, in a silo or in the sums, are left
    alone by the steps.

    Attributes:
        attributes: Those to be forgotten; empty for every one that is asked for, in a run all with classes.
        parts: The parts of the model that hold the vectors; empty for all that have a row a user.
        rounds: The most that are taken (T).
        share: The part of the clients that takes part in a round, drawn anew for each.
        epochs: How often a client goes through its own events in a round.
        recommend: How much training counts: a factor on the plan's rates; with 0 nobody trains.
        items: Whether what is shared moves as well, and goes up as in training.
        until: A round in which vectors move less than this, as a root of the mean square, is the last (ε).
        beta, gamma, drift, lr, ridge, diagonal, emphasis: As of `AegisCS`.
        cap: The most steps that follow the training of a round.
        statistics: Whose classes are compared: those within each ``silo``, or by ``sums`` over all silos of a
            round, one attribute after the other.
    """

    needs_labels: ClassVar[bool] = True

    attributes: Sequence[str] = ()
    parts: Sequence[str] = ()
    rounds: Rounds = 50
    share: PartShare = 1.0
    epochs: Many = 1
    recommend: Amount = 1.0
    items: bool = False
    until: Amount = 1e-4
    beta: Amount = 0.1
    gamma: Amount = 10.0
    drift: Literal["mean", "sum"] = "mean"
    lr: Rate = 0.01
    cap: Steps = 5
    ridge: Amount = 1e-3
    diagonal: bool = False
    emphasis: Mapping[str, Amount] = field(default_factory=dict)
    statistics: Literal["silo", "sums"] = "silo"

    @property
    def needs_silos(self) -> bool:
        return self.statistics == "silo"

    def between(self, clients: Sequence[Present], draws: Draws) -> Between:
        if self.statistics == "sums":
            return self._by_sums(clients, draws)
        return Between([self._within(one) for one in clients])

    @property
    def _steps(self) -> AegisCS:
        return AegisCS(
            beta=self.beta,
            gamma=self.gamma,
            drift=self.drift,
            lr=self.lr,
            cap=self.cap,
            until=0.0,
            ridge=self.ridge,
            diagonal=self.diagonal,
            emphasis=self.emphasis,
        )

    def _within(self, client: Present) -> Tensor:
        """A silo's users after steps by its own statistics, drawn to where they were at first."""
        vectors, before, request = client
        pooled = self._steps.pooled(request)
        told, after = (pooled.code >= 0).any(1), vectors.clone()
        if bool(told.any()):
            middle = vectors[told].mean(0)
            cloud = UserCloud(pooled.code[told], pooled.counts, vectors[told] - middle, before[told] - middle)
            after[told] = self._steps.descent(pooled.weights)(cloud).place + middle
        return after

    def _by_sums(self, clients: Sequence[Present], draws: Draws) -> Between:
        """All silos' users after steps by sums over them; each is then drawn to where it was by itself."""
        apart, up, down, way = replace(self._steps, beta=0.0), 0, 0, 0.0
        holders = [Holder(one.vectors, one.request, draws) for one in clients]
        names = list(clients[0].request.labels)
        for name in names:
            request = clients[0].request.only([name])
            letter = apart.together(holders, request, draws)
            way += float(letter["way"]) / len(names)
            [(_, step)] = apart.steps(request)
            schema = step.schema(clients[0].vectors.shape[1], request.count(name))
            up += len(clients) * codec.size(schema, {})
            down += len(clients) * sum(value.nbytes for value in letter.values())
        rest = math.exp(-2 * self.beta * way)  # how far one is from before, after as many steps towards it
        back = [one.before + rest * (h.vectors - one.before) for one, h in zip(clients, holders, strict=True)]
        return Between(back, up, down)
