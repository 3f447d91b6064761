"""Recovered: a user's vector, read off the gradient of a layer that it went into.

Paper: FedAU², AAAI 2026, §4.3, whose adversary is such a layer; the paper does not speak of it.

A layer x W + b that reads one vector has the gradient ∇W = x ∇bᵀ, so that any unit j with ∇b_j ≠ 0 gives the
vector away: x = ∇W[:, j] / ∇b_j. Whatever comes after the layer, random or not, is in ∇b and cancels out.
All units are used at once: x is the least-squares solution, in which a unit counts by (∇b_j)².

Of weights that were stepped by plain SGD the change serves as well, since the rate cancels out, too. It is
exact where the layer took one step; after more it is a mean of what the vector was on the way. Part of an
input that is the same in all examples of a step is exact also where the rest differs between them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from veilrec.attack import Public, Seen
from veilrec.attacks.common.gradients import slope_of
from veilrec.attacks.common.heads import Layer, layers
from veilrec.attacks.common.uploaded import federation, users_of
from veilrec.base.params import Scope
from veilrec.errors import BadInput

__all__ = ["Recovered", "heads", "recover"]

LEAST = 1e-30  # the largest |∇b_j| of a gradient that is still divided by
PLAIN = "adversary"  # the only head where a model has one for whatever is attacked


class Recovered(NamedTuple):
    """The vector found of every user; zeros where none was."""

    vector: Tensor  # [users, dim]
    there: Tensor  # [users] False where no upload was seen, or its gradient is zero: the user has no label
    off: Tensor  # [users] 1 − R²: how far the gradient is from an outer product; infinite where nothing is


def heads(public: Public) -> list[str]:
    """The parts that guess an attribute from the user's vector, shared by all: ``adversary_gender``.

    Heads are recognised by their names, which end in the attribute's, and by their first layers.
    """
    ends = tuple(f"_{name.replace('.', '_')}" for name in public.model.classes or ())
    named = [part for part in public.model.parts if part == PLAIN or part.endswith(ends)]
    firsts = {part: _first(public, part) for part in named}
    return [part for part, first in firsts.items() if first is not None and first.inputs == public.model.dim]


def refusal(public: Public, parts: Sequence[str] = ()) -> str:
    """The reason why no vector can be recovered from a federation's uploads, and a remedy; or "".

    Args:
        public: What everybody knows of the method.
        parts: Whose inputs are wanted; empty for all heads.
    """
    if public.seats.shape[1] > 1:
        return 'the gradient of a silo is that of all its users together; read "embeddings"'
    chosen = list(parts) or heads(public)
    if not chosen:
        return 'devices share no head that reads user vectors; read "updates", or name parts'
    firsts = {part: _first(public, part) for part in chosen}
    if unfit := [part for part, first in firsts.items() if first is None]:
        return f'"{unfit[0]}" does not begin with a shared layer that has a bias; name another part'
    if len({first.inputs for first in firsts.values() if first is not None}) > 1:
        return f"{' and '.join(chosen)} read vectors of different widths; name one of them"
    if not public.gradients and not public.plain and not _helpers(public, chosen):
        return 'weights tell no gradient unless they are stepped by plain SGD; read "updates"'
    return ""


def recover(seen: Seen, parts: Sequence[str] = ()) -> Recovered:
    """The vector of every user from one upload each; of several parts, from the one that fits best.

    Args:
        seen: What the server has.
        parts: Whose inputs are wanted; empty for all heads, whose input is the user's vector.

    Raises:
        BadInput: Where the uploads hold no such gradient.
    """
    public = federation(seen)
    if why := refusal(public, parts):
        raise BadInput("attack.reads", *why.split("; ", 1))
    firsts = {part: _first(public, part) for part in parts or heads(public)}
    width = next(first.inputs for first in firsts.values() if first is not None)
    n = public.n_users
    found = Recovered(torch.zeros(n, width), torch.zeros(n, dtype=torch.bool), torch.full((n,), torch.inf))
    for exchange in seen.probe(firsts.keys()):
        user = users_of(public, exchange)
        for part, first in firsts.items():
            assert first is not None  # or it was refused
            names = (first.weight, first.bias)
            gradient = {name: slope_of(public, part, f"{part}.{name}", exchange) for name in names}
            _keep(found, user, solve(first.rows(gradient), gradient[first.bias]))
    return found


def solve(rows: Tensor, bias: Tensor) -> Recovered:
    """The vectors that explain the gradients of a layer best.

    Args:
        rows: ``[n, out, in]`` the matrix's, a row for each unit.
        bias: ``[n, out]``.
    """
    top = bias.abs().amax(1).clamp(min=LEAST)  # squares of tiny numbers would be zero
    share = bias / top[:, None]
    weight = top * share.square().sum(1)
    vector = (share[:, None] @ rows).squeeze(1) / weight[:, None]
    whole = torch.linalg.vector_norm(rows, dim=(1, 2), dtype=torch.float64)
    told = vector.double().norm(dim=1) * bias.double().norm(dim=1)
    off = torch.where(whole > 0, 1 - (told / whole).square(), 0).clamp(min=0)
    there = (top > LEAST) & vector.isfinite().all(1) & off.isfinite()
    return Recovered(
        torch.where(there[:, None], vector, 0).float(), there, torch.where(there, off, torch.inf).float()
    )


def _keep(found: Recovered, user: Tensor, tried: Recovered) -> None:
    """Put in what fits better than what was found of these users before."""
    vector, there, off = (value.cpu() for value in tried)
    better = there & (off < found.off[user])
    found.vector[user[better]], found.there[user[better]] = vector[better], True
    found.off[user[better]] = off[better]


def _first(public: Public, part: str) -> Layer | None:
    """The first layer of a part that all share and upload whole, if it has one with a bias."""
    known = public.model.parts.get(part)
    if known is None or known.scope is not Scope.SHARED or known.rows is not None:
        return None
    whole = getattr(public.model, part)
    found = layers(whole) if isinstance(whole, nn.Module) else []
    return found[0] if found and found[0].bias else None


def _helpers(public: Public, parts: Collection[str]) -> bool:
    """True if the parts are all helpers, which a defence trains by SGD."""
    return all(public.model.parts[part].helper for part in parts)
