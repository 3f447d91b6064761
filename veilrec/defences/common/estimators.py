"""Estimators of attributes: what a device believes that its user's vectors tell, attributes side by side.

Paper: Zhao et al., "Privacy-Aware Representation Decoupling in Federated Recommendation against Attribute
Inference Attacks" (PARD).
Eqs. (16) and (21) → `guessing` of ``ir``; Eqs. (29) and (30) → `guessing` of ``fp``; Eqs. (33) and (34) →
`distance`.

Every function takes one device's tensors, or those of a cohort with the client axis in front.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from veilrec.base.keys import Keys
from veilrec.base.params import Params
from veilrec.defences.common.split import SidePerceptron, perceive

__all__ = ["Estimators", "distance", "dropped", "guessing"]

SLOPE = 0.2  # of the leaky ReLU
NEVER = -1e9  # the logit of a class that an attribute does not have
TINY = 1e-12  # under the root: the slope of a distance of 0 is 0


class Values(nn.Module):
    """g^IP: a vector for each value of each attribute, ``[attributes, classes, dim]``."""

    def __init__(self, attributes: int, classes: int, dim: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.weight = nn.Parameter(torch.empty(attributes, classes, dim))

    def initial(self, last: str, keys: Keys) -> Tensor:
        """Draw values as small as the vectors that they stand for."""
        return self.scale * keys.normal(*self.weight.shape)


class Estimators(nn.Module):
    """g^ir, g^FP and g^IP of one device; attributes with fewer classes than others leave some unused.

    Args:
        classes: How many classes each attribute has; with none there is nothing to estimate.
        dim: Width of the vectors.
        scale: Standard deviation of fresh vectors.
    """

    def __init__(self, classes: Mapping[str, int], dim: int, scale: float = 0.01) -> None:
        super().__init__()
        self.classes = dict(classes)
        if not classes:
            return
        side, most = (len(classes),), max(classes.values())
        self.ir = SidePerceptron([2 * dim, 2 * dim, dim, most], side)  # reads [z_u^ir, mean item]
        self.fp = SidePerceptron([dim, dim, max(1, dim // 2), most], side)  # reads z_u^re
        self.ip = Values(len(classes), most, dim, scale)

    def unused(self, device: torch.device) -> Tensor:
        """``[attributes, 1, classes]`` True for classes that an attribute does not have."""
        counts = torch.tensor(list(self.classes.values()), device=device)
        return torch.arange(int(max(self.classes.values())), device=device) >= counts[:, None, None]


def guessing(
    weights: Params,
    which: str,
    x: Tensor,
    label: Tensor,
    unused: Tensor,
    weight: Tensor | None = None,
    drop: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """``[…]`` the cross-entropy of guesses from ``x [… , n, in]``: a sum over attributes of means over rows.

    Args:
        weights: Of the model.
        which: ``ir`` or ``fp``.
        x: What is guessed from.
        label: ``[…, attributes, n]``, -1 where unknown: such a row does not count.
        unused: See `Estimators.unused`.
        weight: ``[…, n]`` of the rows; all alike without.
        drop: What the last hidden layer ``[…, attributes, n, h]`` goes through; see `dropped`.
    """
    logits = perceive(x.unsqueeze(-3), weights, f"estimators.{which}", SLOPE, drop)  # [… , t, n, classes]
    logits = logits.masked_fill(unused, NEVER)
    hot = _hot(label, logits.shape[-1], logits.dtype)
    each = logits.logsumexp(-1) - (hot * logits).sum(-1)
    return _mean(each, label, weight).sum(-1)


def dropped(hidden: Tensor, keys: Keys, share: float) -> Tensor:
    """A hidden layer ``[…, t, n, h]`` with a share of it 0, and the rest as much larger as keeps the mean.

    Rows lead in the draw: with more of them, those in front draw the same numbers.
    """
    t, n, width = hidden.shape[-3:]
    stays = keys.uniform(n, t, width).transpose(-3, -2) >= share
    return hidden * stays / (1 - share)


def distance(weights: Params, vector: Tensor, label: Tensor, squared: bool = False) -> Tensor:
    """``[…]`` how far ``vector [… , n, d]`` is from what its labels stand for; sum and mean as above.

    By the norm of what lies between them, or the mean of its squares.
    """
    table = weights["estimators.ip.weight"]  # [… , t, classes, d]
    stood = _hot(label, table.shape[-2], table.dtype) @ table  # [… , t, n, d]
    square = (vector.unsqueeze(-3) - stood).square()
    far = square.mean(-1) if squared else (square.sum(-1) + TINY).sqrt()
    return _mean(far, label, None).sum(-1)


def _hot(label: Tensor, classes: int, dtype: torch.dtype) -> Tensor:
    """One-hot, ``[…, classes]``; all zero where unknown."""
    return (label[..., None] == torch.arange(classes, device=label.device)).to(dtype)


def _mean(each: Tensor, label: Tensor, weight: Tensor | None) -> Tensor:
    """``[… , t, n]`` to ``[… , t]``: over the rows whose label is known."""
    known = (label >= 0).to(each.dtype)
    known = known if weight is None else known * weight.unsqueeze(-2)
    return (each * known).sum(-1) / known.sum(-1).clamp(min=1)
