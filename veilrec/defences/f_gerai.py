"""F-GERAI: blur a user's features, then blur the objective of local training.

Paper: Zhang et al., "Graph Embedding for Recommendation against Attribute Inference Attacks", WWW 2021
(GERAI), as the rivals F-GERAI and F-GERAI-NL of Zhang, Yuan and Yin (APM), §5.3. Neither code is public, and
the second paper gives no ε: this is written from the definitions of the mechanisms.
Acts at: prepare, attach, penalty.
Stage 1, the features → `prepare`; stage 2, the objective → `penalty`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from torch import Tensor

from veilrec.base.keys import Keys
from veilrec.base.limits.bounds import Amount, Bounds
from veilrec.clients import Clients
from veilrec.defence import Defence
from veilrec.defences.common.kept_noise import kept_keys, secrets, with_kept_keys
from veilrec.defences.common.local_dp import perturbed
from veilrec.errors import BadInput
from veilrec.interactions import Interactions, id_hashes
from veilrec.model import Device, Recommender

__all__ = ["FGERAI"]

NAME = "f_gerai"  # of the part that holds a device's key


@dataclass(frozen=True)
class FGERAI(Defence):
    """Each device blurs its user's features once, and adds a random linear term to its loss.

    Stage 1: of a user's features some are drawn, the others are 0. Numbers go through the piecewise
    mechanism, one-hot blocks through unary encoding (`local_dp`), once for the whole run.

    Stage 2: η·z and a ridge are added to the sum of the losses of a device's examples. z is the user's
    representation, and η holds Laplace(Δ/ε) numbers that the device draws once and keeps. Since the loss of a
    step is a mean over examples, the term of a step is divided by the number of all examples of the device.

    The blurred features are ε-locally private for one user's features as a whole, and nothing else is
    guaranteed. The touched items go into training as they are. Of the functional mechanism, which perturbs
    every coefficient of a Taylor expansion of the loss, stage 2 keeps the first order only, and the vector
    that it multiplies is not bounded. So uploads have no formal guarantee, and the ledger says so.

    Two people's ages and genders, before and after stage 1:

    >>> from veilrec.datasets.synthetic import synthetic
    >>> features, names = torch.tensor([[0.2, 1, 0], [-0.9, 0, 1]]), ["age", "gender=female", "gender=male"]
    >>> log = replace(synthetic(users=2, items=8), features=features, feature_names=names)
    >>> clients = Clients.phones(log.leave_one_out())
    >>> FGERAI(epsilon=8.0).prepare(clients, Keys.seed(0)).log.features.round(decimals=2)
    tensor([[-0.3500,  1.0000,  1.0000],
            [-0.7000,  0.0000,  1.0000]])

    Attributes:
        epsilon: ε of stage 1; in Python infinite for no noise, in a recipe ``features = false``.
        objective_epsilon: ε of stage 2; in Python infinite for no noise, in a recipe ``sensitivity = 0``.
        sensitivity: Δ of stage 2; 0 for no noise. Near 0 the log-loss of an example is log 2 ∓ z·v/2 + …,
            with v the item's side of the score. Another example in its place moves the coefficient of z by at
            most 2 · ‖v‖₁/2: 1 where ‖v‖₁ ≤ 1, and 2 for pairs, whose v is a difference. Nothing enforces it.
        ridge: A loss with a linear term has no least value, and training runs away with it. So r·‖z‖² is
            added, with r in standard deviations of a number of η; the authors of the functional mechanism
            (Zhang et al., VLDB 2012) take 4. 0 for none.
        features: Whether there is a stage 1; False is F-GERAI-NL. Where the data has no features, or the
            model reads none, there is nothing to blur, and stage 2 is all.
    """

    epsilon: Annotated[float, Bounds(0, math.inf, above=True)] = 1.0
    objective_epsilon: Annotated[float, Bounds(0, math.inf, above=True)] = 1.0
    sensitivity: Amount = 1.0
    ridge: Amount = 4.0
    features: bool = True

    @property
    def scale(self) -> float:
        """λ of η."""
        return self.sensitivity / self.objective_epsilon

    def prepare(self, clients: Clients, keys: Keys) -> Clients:
        log = clients.log
        if not self.features or log.features is None or math.isinf(self.epsilon) or not log.features.numel():
            return clients
        _check_names(log)
        own = keys.fold("features").fold(id_hashes(log.user_ids))  # [users]: nobody's noise depends on others
        own = secrets(own.value) if self.secret else own
        told = perturbed(log.features, log.feature_names, self.epsilon, own)
        return replace(clients, log=replace(log, features=told))

    def attach(self, model: Recommender) -> Recommender:
        if not self.scale:
            return model
        wider = with_kept_keys(model, NAME, secret=self.secret)
        # A step shows some examples; the history tells how many there are, or as many as the model asks for.
        wider.history = model.history or -1
        return wider

    def penalty(self, model: Recommender, device: Device) -> Tensor:
        if not self.scale:
            return device.batch.weight.new_zeros(())
        batch, user = device.batch, model.represent(device.batch)  # [seats, dim]
        noise = self.scale * kept_keys(model, NAME).laplace(*user.shape, dtype=user.dtype)
        events = (batch.history >= 0).sum(1)  # [seats]; 0 where the seat is empty
        examples = torch.maximum(events.sum().to(user.dtype), batch.weight.sum().clamp(min=1))
        ridge = self.ridge * math.sqrt(2) * self.scale  # a Laplace number deviates by √2 times its scale
        return ((events > 0)[:, None] * (noise * user + ridge * user.square())).sum() / examples


def _check_names(log: Interactions) -> None:
    """Refuse columns without names, which alone tell numbers from one-hot blocks."""
    width = 0 if log.features is None else log.features.shape[1]
    if len(log.feature_names) != width:
        what = f"{width} columns and {len(log.feature_names)} names"
        raise BadInput("data.feature_names", what, "give one name a column; a one-hot column is block=class")
