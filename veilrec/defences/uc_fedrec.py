"""UC-FedRec: users who keep an attribute to themselves train against guessers that all others have trained.

Paper: Hu and Song, "User Consented Federated Recommender System Against Personalized Attribute Inference
Attack", WSDM 2024.
Acts at: attach, helper_loss, penalty.

Users who consent to share an attribute train its discriminator on their own vector and label, and the server
averages it over them. A user who does not consent leaves it as it came, so that what goes up is what came
down: it reveals that the user does not share the attribute (or has no label), and nothing of the label, which
is never read. The paper's filter is, as in its code, no network of its own: the penalty acts on the vector
that stands for the user in the scores, which with `FedLightGCN` is the user's averaged with its items'.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from veilrec.base.limits.bounds import Amount, Positive, Width
from veilrec.base.params import Part, Scope
from veilrec.defence import Defence, HelperSteps, guarded
from veilrec.defences.common.adversary import mean_over, part_named
from veilrec.defences.common.split import SidePerceptron, perceive
from veilrec.model import Device, Recommender, with_part

__all__ = ["UCFedRec"]

PART = "discriminator_"  # before the name of the attribute
SLOPE = 0.2  # of the leaky ReLU


class Guess(NamedTuple):
    """The guesses that the discriminator of an attribute makes about a device's users."""

    logits: Tensor  # [seats, classes]
    label: Tensor  # [seats], -1 unknown
    shares: Tensor  # [seats] whether the user consents to share the attribute
    taken: Tensor  # [seats] whether there is a user


@dataclass(frozen=True)
class UCFedRec(Defence):
    """Push what discriminators make of a user vector towards a uniform guess, for those who want it.

    Who consents is for the data to say (`data.consent`). Where nobody shares an attribute its discriminator
    learns nothing and protects nobody, so that an experiment of that kind is refused. It promises nothing
    formally.

    >>> from veilrec.models.fedmf import FedMF
    >>> model = FedMF(3, dim=2)
    >>> model.classes = {"gender": 2, "age": 3}
    >>> guarded = UCFedRec(attributes=("gender",)).attach(model)
    >>> list(guarded.parts)
    ['user', 'item', 'discriminator_gender']
    >>> guarded.parts["discriminator_gender"].helper  # trained by the defence; scores never read it
    True

    Attributes:
        strength: λ, the weight of KL(guess ‖ uniform) in the loss of those who do not consent.
        hidden: Widths of a discriminator's hidden layers; the authors' are deeper and have dropout.
        lr: Rate of the discriminators' own SGD; in the authors' code a twentieth of the recommender's.
        attributes: Attributes to protect; empty for all that the data has.
    """

    strength: Amount = 1.0
    hidden: tuple[Width, ...] = (64, 64)
    lr: Positive = 0.1
    attributes: tuple[str, ...] = ()

    @property
    def helpers(self) -> HelperSteps:  # type: ignore[override]
        """A discriminator learns nothing unless somebody shares its attribute."""
        return HelperSteps(lr=self.lr, taught_by=tuple(self.attributes))

    def attach(self, model: Recommender) -> Recommender:
        """One discriminator for each attribute, which all devices get."""
        for name, classes in guarded(model, self.attributes).items():
            network = SidePerceptron([model.dim, *self.hidden, classes])
            model = with_part(model, part_named(PART, name), network, Part(Scope.SHARED, helper=True))
        return model

    def helper_loss(self, model: Recommender, device: Device) -> Tensor:
        """The cross-entropy of the guesses on those who share the attribute and know their label."""
        loss = torch.zeros(())
        for guess in self._guesses(model, device):
            each = F.cross_entropy(guess.logits, guess.label.clamp(min=0), reduction="none")
            loss = loss + mean_over(each, guess.shares & (guess.label >= 0))
        return loss

    def penalty(self, model: Recommender, device: Device) -> Tensor:
        """λ · KL(guess ‖ uniform) of those who do not share the attribute, whatever their label is."""
        loss = torch.zeros(())
        for guess in self._guesses(model, device):
            log = guess.logits.log_softmax(-1)
            each = (log.exp() * log).sum(-1) + math.log(log.shape[-1])  # minus the entropy, from 0 upwards
            loss = loss + mean_over(each, guess.taken & ~guess.shares)
        return self.strength * loss

    def _guesses(self, model: Recommender, device: Device) -> Iterator[Guess]:
        batch, weights = device.batch, dict(model.named_parameters())
        user = model.represent(batch)  # [seats, dim]
        for name, label in batch.attributes.items():
            if (part := part_named(PART, name)) in model.parts:
                logits = perceive(user, weights, part, SLOPE)
                yield Guess(logits, label, batch.consents[name], batch.taken)
