"""FedAU²: users unlearn an attribute while they train, as long as a shared adversary still guesses it.

Paper: Li et al., "FedAU²: Attribute Unlearning for User-Level Federated Recommender Systems with Adaptive and
Robust Adversarial Training", AAAI 2026.
Acts at: attach, penalty.
Eqs. (3) and (5) → `penalty`, Eq. (6) and the binary trigger below it → `_strength`, Eq. (10) → `Adversary`.

The adversary is trained by everybody on the own label and averaged like the recommender. Its gradient leaves
the device, and with it what it tells of the label: see `attacks/dlg.py`. It also tells the user's vector, to
the last digit: a column of the first matrix's gradient, divided by that of its bias, is the vector, whatever
noise the last layer draws. A vector that is private without the defence is not private with it.

The reversed gradient moves what the user's vector is made of. Where that is private it stays on the device;
on FedVAE it goes up within the gradient of the encoder.
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

from veilrec.defence import Defence, guarded
from veilrec.defences.adversary import Adversary, Head, mean_over, part_named
from veilrec.errors import BadInput
from veilrec.keys import Keys
from veilrec.model import Device, Recommender, with_part
from veilrec.params import Part, Scope

__all__ = ["FedAU2"]

PART = "adversary_"  # before the name of the attribute


@dataclass(frozen=True)
class FedAU2(Defence):
    """Train an adversary on the user's vector, and the vector against the adversary.

    It promises nothing formally. With `head = "dsvae"` an upload still tells the label more often than not:
    a row of the adversary's gradient has the sign of (p − y) ε₁, and ε₁ is below 0 in Φ(−1/√λ) of the draws,
    24 % at λ = 2. Over several uploads of one user the draws average out.

    Attributes:
        strength: ε, by which the reversed gradient is multiplied.
        weight: λ of Eq. (5), of the adversary's loss.
        trigger: When a user unlearns: ``sut``, while the adversary is right about the user; ``continuous``,
            by Eq. (6), with a reversed gradient of length λτ; ``global``, always; ``pretrain``, always, after
            some rounds in which the adversary learns alone.
        pretrain: How many rounds these are.
        tau: τ of Eq. (6).
        head: What hides the label in the adversary's gradient: see `Adversary`.
        variance: λ of Eq. (10), of ε₁.
        hidden: Width of the adversary's hidden layer.
        each: The adversary's term once in a round, in its first step, or in every step. Under a protocol of
            gradients it is sent whole, however many steps there are.
        attributes: What is unlearned, each by an adversary of its own; empty for all that the data has.
    """

    strength: float = 1.0
    weight: float = 1.0
    trigger: Literal["sut", "continuous", "global", "pretrain"] = "sut"
    pretrain: int = 0
    tau: float = 1.0
    head: Head = "dsvae"
    variance: float = 2.0
    hidden: int = 100
    each: Literal["round", "step"] = "round"
    attributes: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("strength", "weight", "tau", "variance", "pretrain"):
            if not 0 <= getattr(self, name) < math.inf:
                raise BadInput(f"defence.{name}", f"{getattr(self, name)} is no amount", "give 0 or more")
        if self.hidden < 1:
            raise BadInput("defence.hidden", f"a width of {self.hidden}", "give 1 or more")
        if bool(self.pretrain) != (self.trigger == "pretrain"):
            what = f'{self.pretrain} rounds, and the trigger is "{self.trigger}"'
            raise BadInput("defence.pretrain", what, 'give 1 or more with defence.trigger = "pretrain" alone')

    @property
    def guards_from(self) -> int:
        return self.pretrain

    def attach(self, model: Recommender) -> Recommender:
        """One adversary for each attribute, which all devices get."""
        for name, classes in guarded(model, self.attributes).items():
            adversary = Adversary(model.dim, classes, self.hidden, self.head, self.variance)
            part = Part(Scope.SHARED, adds=self.each == "round")
            model = with_part(model, part_named(PART, name), adversary, part)
        return model

    def penalty(self, model: Recommender, device: Device) -> Tensor:
        """λ · CE(h(GRL(em; ε_u)), y), summed over attributes; a user without a label has none."""
        user, loss = model.represent(device.batch), torch.zeros(())  # [seats, dim]
        for adversary, label, keys in self._adversaries(model, device):
            strength = self._strength(adversary, user.detach(), label, keys, device.round)[:, None]
            turned = user.detach() - strength * (user - user.detach())  # its value is that of `user`
            loss = loss + mean_over(_cross_entropy(adversary, turned, label, keys), label >= 0)
        now = torch.ones_like(device.step) if self.each == "step" else device.step == 0
        return self.weight * now * loss

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
        for name, label in device.batch.attributes.items():
            if (part := part_named(PART, name)) in model.parts:
                yield model.get_submodule(part), label, device.keys.fold(part)  # type: ignore[misc]


def _logits(adversary: Adversary, user: Tensor, keys: Keys) -> Tensor:
    return adversary(user, keys) if adversary.draws else adversary(user)  # type: ignore[no-any-return]


def _cross_entropy(adversary: Adversary, user: Tensor, label: Tensor, keys: Keys) -> Tensor:
    """``[seats]``, of whoever has a label."""
    return F.cross_entropy(_logits(adversary, user, keys), label.clamp(min=0), reduction="none")
