"""Local differential privacy for a user's features: the piecewise mechanism and unary encoding.

Papers: Wang et al., "Collecting and Analyzing Multidimensional Data with Local Differential Privacy", ICDE
2019 (numbers, and the sampling of attributes); Wang et al., "Locally Differentially Private Protocols for
Frequency Estimation", USENIX Security 2017 (optimised unary encoding).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from veilrec.base.keys import Keys

__all__ = ["attributes", "perturbed", "piecewise", "reach", "sampled", "unary"]

LATTICE = 2.0**16  # outputs are multiples of 1/LATTICE, whatever went in: low bits of a float tell tales
PER_ATTRIBUTE = 2.5  # of ε: with less for each, one attribute more costs more than it tells


def reach(epsilon: float) -> float:
    """C: what the piecewise mechanism gives lies within ±C; (e^{ε/2} + 1) / (e^{ε/2} − 1)."""
    return 1 / math.tanh(epsilon / 4)


def piecewise(value: Tensor, epsilon: float, keys: Keys) -> Tensor:
    """Numbers ``[users, n]`` in [−1, 1] (beyond are cut to it), each made ε-private: unbiased, within ±C.

    With probability e^{ε/2} / (e^{ε/2} + 1) a number is drawn from a piece of length C − 1 around itself,
    else from the rest of [−C, C]; so no density is more than e^ε times another. `keys` are the users' own.
    """
    limit, n = reach(epsilon), value.shape[-1]
    low = (limit + 1) / 2 * value.double().clamp(-1, 1) - (limit - 1) / 2  # where the piece begins
    inside = keys.fold("inside").uniform(n, dtype=torch.float64) < 1 / (1 + math.exp(-epsilon / 2))
    place = keys.fold("place").uniform(n, dtype=torch.float64)
    outside = place * (limit + 1) - limit  # the rest as if the piece were cut out of it
    outside = torch.where(outside < low, outside, outside + (limit - 1))
    drawn = torch.where(inside, low + place * (limit - 1), outside)
    most = math.floor(limit * LATTICE)
    return (drawn * LATTICE).round().clamp(-most, most) / LATTICE


def unary(bits: Tensor, epsilon: float, keys: Keys) -> Tensor:
    """One-hot blocks ``[users, n]``, ε-private each: a 1 stays with probability ½, a 0 is raised with
    1/(e^ε + 1).

    Two users' blocks differ in two bits, one each way: (½ / q) · ((1 − q) / ½) = e^ε. A block that is all 0
    (unknown) differs in one, and is covered too.
    """
    raised = 1 / (1 + math.exp(min(epsilon, 700.0)))  # beyond 700 the power overflows
    chance = torch.where(bits > 0.5, 0.5, raised)
    return (keys.uniform(bits.shape[-1], dtype=torch.float64) < chance).double()


def attributes(names: Sequence[str]) -> Tensor:
    """``[width]`` the attribute of each column: a number alone, or a one-hot block (``gender=…``) together.

    Two numbers are two attributes, even if they share a name.
    """
    labels = [name.split("=")[0] + "=" if "=" in name else str(place) for place, name in enumerate(names)]
    order = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    return torch.tensor([order[label] for label in labels], dtype=torch.int64)


def sampled(n: int, epsilon: float) -> int:
    """k: how many of `n` attributes a user tells; the fewer there are, the more of ε each has."""
    return max(1, min(n, math.floor(epsilon / PER_ATTRIBUTE)))


def perturbed(features: Tensor, names: Sequence[str], epsilon: float, keys: Keys) -> Tensor:
    """Users' features ``[users, width]``, ε-private each user's as a whole; `keys` are the users' own.

    k of the d attributes are drawn without replacement and told with ε/k each, the others are 0. Unbiased,
    numbers lie within ±(d/k)·C, so far that only small rates survive it. Divided by that bound, which
    costs no privacy, they lie in [−1, 1], where features are by contract. Bits stay bits.
    """
    whose = attributes(names)  # [width]
    d = int(whose.max()) + 1
    k = sampled(d, epsilon)
    chosen = torch.zeros(len(features), d, dtype=torch.bool)
    chosen.scatter_(1, keys.fold("attributes").order(d)[:, :k], True)
    numbers = piecewise(features, epsilon / k, keys.fold("numbers")) * (1 / reach(epsilon / k))
    bits = unary(features, epsilon / k, keys.fold("bits"))
    numeric = torch.tensor(["=" not in name for name in names])
    told = torch.where(numeric, numbers, bits)
    return torch.where(chosen[:, whose], told, 0.0).to(features.dtype)
