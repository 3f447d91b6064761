"""Helper steps: those of the networks that only a defence trains, beside those of the recommender."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from veilrec.base.params import Params, Scope, part_of
from veilrec.base.rows import along
from veilrec.base.steps import Stepper
from veilrec.defence import Defence, loss_of
from veilrec.model import Device, Recommender

if TYPE_CHECKING:
    from veilrec.engine.local import LocalTask, Situation

__all__ = ["help_along", "helper_stepper", "size"]

COPIES = 5  # weights and momentum, both once more in the store's answer, and the gradient


def helper_stepper(defence: Defence) -> Stepper:
    """The stepper of a defence's helper parts."""
    return Stepper("sgd", defence.helpers.lr, defence.helpers.momentum)


def size(model: Recommender) -> int:
    """How many values a device holds of helper parts of its own while it trains."""
    own = [n for n in model.names(Scope.EXPOSED, Scope.PRIVATE) if model.parts[part_of(n)].helper]
    return COPIES * sum(model.get_parameter(name).numel() for name in own)


def help_along(
    task: LocalTask, read: Params, params: Params, state: Params, device: Device, situation: Situation
) -> None:
    """The steps of the helper parts before one of the recommender, in the rounds in which they are trained.

    What is `read` of helpers are views of `params`: each step finds them as the one before has left them. The
    first one draws from the device's keys as they are, the others from keys of their own.
    """
    helpers, number = task.defence.helpers, situation.sent.round
    rests = number < helpers.after or number % helpers.every
    if rests or not task.helpers or not task.defence.acts("helper_loss"):
        return
    for turn in range(helpers.times):
        keys = device.keys.fold("pass").fold(turn) if turn else device.keys
        _step(task, read, params, state, device._replace(keys=keys), situation)


def _step(
    task: LocalTask, read: Params, params: Params, state: Params, device: Device, situation: Situation
) -> None:
    """One step of the helpers, with moments."""
    names = task.helpers
    leaves = {n: read[n].detach().requires_grad_() for n in names}  # `read` itself stands still for the rest
    rest = {n: w for n, w in read.items() if n not in leaves}
    with torch.enable_grad():
        losses, weights = torch.zeros(()), {**leaves, **rest}
        for link, own in task.defence.acting("helper_loss", device):
            losses = losses + loss_of(link, "helper_loss", task.model, weights, own, situation.axes)
        slopes = torch.autograd.grad(losses.sum(), list(leaves.values()), allow_unused=True)
    named = {n: s for n, s in zip(names, slopes, strict=True) if s is not None}
    helper_stepper(task.defence).step(params, _clipped(named, task.defence.helpers.clip), state)


def _clipped(slopes: Params, bound: float) -> Params:
    """Gradients whose joint norm, for each client, is at most `bound` (0: as they are)."""
    if not bound or not slopes:
        return slopes
    norms = torch.stack([torch.linalg.vector_norm(s.flatten(1), dim=1) for s in slopes.values()])
    norm = torch.linalg.vector_norm(norms, dim=0)
    if not bool((norm > bound).any()):
        return slopes
    factor = (bound / norm.clamp(min=1e-12)).clamp(max=1.0)
    return {n: s * along(factor, s) for n, s in slopes.items()}
