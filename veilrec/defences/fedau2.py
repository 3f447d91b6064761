"""FedAU²: users unlearn an attribute while they train, as long as a shared adversary still guesses it.

Paper: Li et al., "FedAU²: Attribute Unlearning for User-Level Federated Recommender Systems with Adaptive and
Robust Adversarial Training", AAAI 2026.
Acts at: attach, penalty.
Eqs. (3) and (5) → `penalty`, Eq. (6) and the binary trigger below it → `_strength`, Eq. (10) → `Adversary`;
`randomised` is ours, and not in the paper.

Every device trains the adversary on its user's label, and the server averages it like the recommender. Its
gradient leaves the device. It reveals the label (`attacks/idlg.py`) and, to the last digit, the user's
vector: a column of the first matrix's gradient, divided by that of its bias, is the vector, whatever noise
the last layer draws (`attacks/common/recovered.py`). A private vector is not private with this defence.

The reversed gradient moves the weights that make the user's vector. Where these are private they stay on the
device; of FedVAE they go up within the gradient of the encoder.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad

from veilrec.base.keys import Keys
from veilrec.base.limits.bounds import Amount, RoundsOrNone, Width
from veilrec.base.params import Part, Scope
from veilrec.defence import Defence, guarded
from veilrec.defences.common.adversary import Adversary, Head, mean_over, part_named
from veilrec.defences.common.kept_noise import kept_keys, with_kept_keys
from veilrec.errors import BadInput
from veilrec.model import Device, Recommender, with_part

__all__ = ["FedAU2"]

PART = "adversary_"  # before the name of the attribute
NAME = "fedau2"  # of the part that holds a device's key, where labels are drawn


@dataclass(frozen=True)
class FedAU2(Defence):
    """Train an adversary on the user's vector, and the vector against the adversary.

    The defence promises nothing formally. With `head = "dsvae"` an upload mostly reveals the label still:
    a row of the adversary's gradient has the sign of (p − y) ε₁, and ε₁ is below 0 in Φ(−1/√λ) of the draws,
    24 % at λ = 2. Over several uploads of one user the draws average out.

    With `label_epsilon` a user's label is replaced by randomised response, drawn once for each user and
    attribute, and the defence uses the drawn label alone. All uploads of all rounds together reveal at best
    that label: ε-local privacy of the label of one attribute. The ε of several attributes add up, and so do
    those of another federation, or of a store that is made anew, where labels are drawn again. Nothing is
    promised of the events, user vectors, features or other defences, which may reveal the attribute, and the
    ledger, which counts noise on uploads, does not know of it. It costs unlearning: where the adversary
    guesses the truth and another label was drawn, `sut` leaves the user alone, and the other triggers push
    away from the drawn label: with two classes, towards the truth.

    >>> from veilrec.models.fedmf import FedMF
    >>> model = FedMF(3, dim=2)
    >>> model.classes = {"gender": 2}
    >>> {name: part.scope.value for name, part in FedAU2().attach(model).parts.items()}
    {'user': 'private', 'item': 'shared', 'adversary_gender': 'shared'}

    A thousand people with class 0, as they say it under ε = 1: e / (e + 1), or 73 % of them, say the truth.

    >>> said = randomised(torch.zeros(1000, dtype=torch.int64), classes=2, epsilon=1.0, keys=Keys.seed(0))
    >>> round(float((said == 0).double().mean()), 2)
    0.73

    Attributes:
        strength: ε, by which the reversed gradient is multiplied.
        weight: λ of Eq. (5), of the adversary's loss.
        trigger: When a user unlearns: ``sut``, while the adversary is right about the user; ``continuous``,
            by Eq. (6), with a reversed gradient of length λτ; ``global``, always; ``pretrain``, always, after
            some rounds in which the adversary learns alone.
        pretrain: The number of these rounds.
        tau: τ of Eq. (6).
        head: The last layer of the adversary, which hides the label in its gradient: see `Adversary`.
        variance: λ of Eq. (10), of ε₁.
        hidden: Width of the adversary's hidden layer.
        each: The adversary's term once in a round, in its first step, or in every step. Under a protocol of
            gradients it is sent whole, however many steps there are.
        attributes: Attributes to unlearn, each by an adversary of its own; empty for all that the data has.
        label_epsilon: ε of randomised response: of C classes a user says the true one with probability
            e^ε / (e^ε + C − 1), and all others are alike; not given, the true one always. At 0 what is said
            reveals nothing, except that there is a label.
    """

    strength: Amount = 1.0
    weight: Amount = 1.0
    trigger: Literal["sut", "continuous", "global", "pretrain"] = "sut"
    pretrain: RoundsOrNone = 0
    tau: Amount = 1.0
    head: Head = "dsvae"
    variance: Amount = 2.0
    hidden: Width = 100
    each: Literal["round", "step"] = "round"
    attributes: Sequence[str] = ()
    label_epsilon: Amount | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.pretrain) != (self.trigger == "pretrain"):
            what = f'{self.pretrain} rounds, and the trigger is "{self.trigger}"'
            raise BadInput("defence.pretrain", what, 'give 1 or more with defence.trigger = "pretrain" alone')

    @property
    def penalty_is(self) -> Literal["step", "round"]:  # type: ignore[override]
        return self.each

    @property
    def guards_from(self) -> int:
        return self.pretrain

    def attach(self, model: Recommender) -> Recommender:
        """One adversary for each attribute, which all devices get; where labels are drawn, a key to keep."""
        for name, classes in guarded(model, self.attributes).items():
            if part_named(PART, name) in model.parts:  # both would train it, and one might say the truth
                fix = "once is enough: name it in one of them"
                raise BadInput("defence.attributes", f"{name} is unlearned twice", fix)
            adversary = Adversary(model.dim, classes, self.hidden, self.head, self.variance)
            model = with_part(model, part_named(PART, name), adversary, Part(Scope.SHARED, loss_is=self.each))
        return model if self.label_epsilon is None else with_kept_keys(model, NAME, secret=self.secret)

    def penalty(self, model: Recommender, device: Device) -> Tensor:
        """λ · CE(h(GRL(em; ε_u)), y), summed over attributes; a user without a label has none."""
        loss = device.batch.weight.new_zeros(())
        user = model.represent(device.batch)  # [seats, dim] em
        for adversary, label, keys in self._adversaries(model, device):
            strength = self._strength(adversary, user.detach(), label, keys, device.round)[:, None]
            turned = user.detach() - strength * (user - user.detach())  # its value is that of `user`
            loss = loss + mean_over(_cross_entropy(adversary, turned, label, keys), label >= 0)
        return self.weight * loss

    def _strength(
        self, adversary: Adversary, user: Tensor, label: Tensor, keys: Keys, round: Tensor
    ) -> Tensor:
        """``[seats]`` ε_u: how strongly each user's gradient is reversed."""
        if self.trigger == "continuous":
            slope = grad(lambda vector: _cross_entropy(adversary, vector, label, keys).sum())(user)
            return self.tau / slope.norm(dim=-1).clamp(min=1e-12)  # type: ignore[no-any-return]
        if self.trigger == "sut":
            right = _logits(adversary, user, keys).argmax(-1) == label
            return self.strength * right.to(user.dtype)
        return self.strength * (round >= self.pretrain).to(user.dtype).expand(len(user))

    def _adversaries(self, model: Recommender, device: Device) -> Iterator[tuple[Adversary, Tensor, Keys]]:
        """Each adversary with the labels ``[seats]`` it learns; only this function reads the true ones."""
        for name, label in device.batch.attributes.items():
            part, mine = part_named(PART, name), not self.attributes or name in self.attributes
            if mine and part in model.parts:  # in a chain, another's may say other labels
                adversary: Adversary = model.get_submodule(part)  # type: ignore[assignment]
                yield adversary, self._said(model, part, label, adversary.classes), device.keys.fold(part)

    def _said(self, model: Recommender, part: str, label: Tensor, classes: int) -> Tensor:
        """``[seats]`` the labels drawn with the device's kept key: the same in every step of every round."""
        if self.label_epsilon is None:
            return label
        return randomised(label, classes, self.label_epsilon, kept_keys(model, NAME).fold(part))


def randomised(label: Tensor, classes: int, epsilon: float, keys: Keys) -> Tensor:
    """``label [seats]`` after randomised response; -1, for no label, stays -1.

    A label stays with probability e^ε / (e^ε + C − 1), and is each other class with 1 / (e^ε + C − 1).
    """
    stays = 1 / (1 + (classes - 1) * math.exp(-epsilon))
    kept = keys.fold("stays").uniform(len(label), dtype=torch.float64) < stays
    other = (label + 1 + keys.fold("other").integers(classes - 1, len(label))) % classes
    return torch.where(kept | (label < 0), label, other)


def _logits(adversary: Adversary, user: Tensor, keys: Keys) -> Tensor:
    return adversary(user, keys) if adversary.draws else adversary(user)  # type: ignore[no-any-return]


def _cross_entropy(adversary: Adversary, user: Tensor, label: Tensor, keys: Keys) -> Tensor:
    """``[seats]`` the cross-entropy; of a user without a label it means nothing."""
    return F.cross_entropy(_logits(adversary, user, keys), label.clamp(min=0), reduction="none")
