"""F-DPMF: train item vectors on an objective to which all devices together add Laplace noise.

Paper: Hua, Xia and Zhong, "Differentially Private Matrix Factorization", IJCAI 2015 (DPMF), as the rival
F-DPMF of Zhang, Yuan and Yin (APM), §5.3. Neither code is public, and the second paper gives no ε: this is
written from the definition of the mechanism.
Acts at: prepare, attach, penalty.
Objective perturbation with noise in shares → `penalty`; a device's share of the noise → `share`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, cast

import torch
from torch import Tensor

from veilrec.base.keys import Keys, normal_of
from veilrec.base.limits.bounds import Amount, Bounds, Many
from veilrec.base.params import Scope, part_of
from veilrec.clients import Clients
from veilrec.defence import Defence
from veilrec.defences.common.kept_noise import kept_keys, with_kept_keys
from veilrec.errors import BadInput
from veilrec.model import Device, Recommender

__all__ = ["FDPMF"]

NAME = "f_dpmf"  # of the part that holds a device's key


@dataclass(frozen=True)
class FDPMF(Defence):
    """Each device adds η·v to its loss for the items v that a step names; user vectors stay as they are.

    η is a device's share of the noise on an item's vector. The server draws h from Exp(1), in public, for
    each coordinate of each item. Of n devices each draws c from N(0, 1/n) and takes η = (2Δ/ε) · √(2h) · c:
    the sum of n shares is Laplace with scale 2Δ/ε in each coordinate, all independent. A device draws a
    share once and keeps it. It is added wherever an example names the item, touched or drawn as untouched,
    and divided by the number of examples, since the loss is a mean over them: a pass adds η once for a
    touched item, and as often as it was drawn for another.

    In the paper every user sends a noisy gradient for every item. Here a device uploads only the rows that it
    names, so the numbers of these rows stay in the clear, and fewer than n shares come together in an item;
    fewer still where a round has only some of the clients. The paper's proof also needs user vectors of
    bounded length, which these are not. And the noise covers the sum alone: one upload, which our attackers
    read, carries one share. So uploads have no formal guarantee, and the ledger says so.

    A hundred devices draw their shares of the noise on item 0; each coordinate of their sum is one Laplace
    number of scale λ:

    >>> from veilrec.models.fedmf import FedMF
    >>> defence = FDPMF(epsilon=2.0, clients=100)
    >>> defence.scale
    1.0
    >>> list(defence.attach(FedMF(3)).parts)
    ['user', 'item', 'f_dpmf']
    >>> shares = [defence.share(Keys.seed(k), "item", torch.tensor([0]), 2) for k in range(100)]
    >>> sum(shares).round(decimals=2)
    tensor([[-2.0900,  0.5600]], dtype=torch.float64)

    Attributes:
        epsilon: ε of the paper, for the vector of an item; in Python infinite for no noise, in a
            recipe ``sensitivity = 0``.
        sensitivity: Δ, by how much one label can differ: 1 for touched or not; 0 for no noise. The gradient
            of squared loss then moves by 2Δ·u, of log-loss by Δ·u. So 2Δ/ε is enough where ‖u‖₁ ≤ 1; where
            only ‖u‖₂ ≤ 1 is known, give √dim.
        clients: The number of clients with events, among whom the noise is split; a simulation checks it
            before training. No device can count the others, so it is a setting. With 1 each device adds whole
            noise, as a device must that trusts no sum.
    """

    epsilon: Annotated[float, Bounds(0, math.inf, above=True)] = 1.0
    sensitivity: Amount = 1.0
    clients: Many = 1

    @property
    def scale(self) -> float:
        """λ of the noise that all shares make together."""
        return 2 * self.sensitivity / self.epsilon

    def prepare(self, clients: Clients, keys: Keys) -> Clients:
        able = sum(size > 0 for size in clients.sizes)
        if len(clients) > 1 and self.clients not in (1, able):  # a device alone cannot count the others
            what = f"{self.clients} shares of the noise, but {able} clients have events"
            raise BadInput("defence.clients", what, f"set it to {able}, or to 1 for whole noise on each")
        return clients

    def attach(self, model: Recommender) -> Recommender:
        if not tables(model):
            raise BadInput(
                "defence.name", "the model has no item table to blur", "use one that has, e.g. FedMF"
            )
        return with_kept_keys(model, NAME, secret=self.secret) if self.scale else model

    def penalty(self, model: Recommender, device: Device) -> Tensor:
        if not self.scale:
            return device.batch.weight.new_zeros(())
        batch, keys = device.batch, kept_keys(model, NAME)
        place = torch.cat([batch.item[:, None], batch.negative], 1)  # [b, 1 + q] rows of the local tables
        weight = batch.weight / batch.weight.sum().clamp(min=1)
        each = torch.zeros_like(weight)  # [b]
        for name in tables(model):
            table = weight_of(model, name)
            table = table.reshape(len(table), -1)  # [local, d]
            noise = self.share(keys, name, batch.rows[place], table.shape[1])
            each = each + (noise.to(table.dtype) * table[place]).sum((1, 2))
        return (weight * each).sum()

    def share(self, keys: Keys, name: str, row: Tensor, width: int) -> Tensor:
        """η of a device, by its kept keys, for some rows of a table: ``[*row.shape, width]`` in float64."""
        public = Keys.seed(0, row.device).fold(NAME).fold(name)  # everybody knows h
        spread = (2 * exponential_of(public.rows(row, width))).sqrt()  # √(2h)
        own = normal_of(keys.fold(name).rows(row, width)) / math.sqrt(self.clients)  # c
        return self.scale * spread * own


def exponential_of(words: Tensor) -> Tensor:
    """Random words to numbers from Exp(1) in float64: the upper 52 bits as a place in (0, 1)."""
    upper = (words >> 12) & ((1 << 52) - 1)
    return -((upper.double() + 0.5) * 2.0**-52).log()


def weight_of(model: Recommender, name: str) -> Tensor:
    """A weight by its dotted name, also while the engine has put another tensor in its place."""
    found: Any = model
    for attribute in name.split("."):
        found = getattr(found, attribute)
    return cast(Tensor, found)


def tables(model: Recommender) -> list[str]:
    """The weights that hold a row for each item and are not a device's own."""
    return [name for name in model.names(Scope.SHARED) if model.parts[part_of(name)].rows == "item"]
