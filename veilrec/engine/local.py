"""A cohort learns: the one file that knows that many devices are trained at once.

Devices' weights are stacked with the client axis first and the loss is the sum of everybody's. No weight
is shared inside the stack, so one ordinary backward pass gives each device its own gradient.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from veilrec.base.keys import Keys
from veilrec.base.params import Params, Part, Scope, part_of
from veilrec.base.plan import Plan
from veilrec.base.rows import along
from veilrec.base.steps import Stepper
from veilrec.clients import Batch
from veilrec.defence import Defence, changed, loss_of
from veilrec.engine.helper_steps import help_along, helper_stepper
from veilrec.examples import Examples
from veilrec.model import Device, Recommender, mapped, overrides
from veilrec.protocol import Protocol, Trained
from veilrec.wire.uploads import Letter

__all__ = ["LocalTask", "Situation", "train"]


@dataclass(frozen=True)
class LocalTask:
    """A task: model, protocol, defence and plan of a round, for whoever trains."""

    model: Recommender
    protocol: Protocol
    defence: Defence
    plan: Plan
    trains: Container[str] | None = None  # parts that may move; None for all
    together: Collection[str] = ()  # weights whose gradients are summed over devices: see `together`

    @cached_property
    def stepper(self) -> Stepper:
        """The stepper of the recommender's weights."""
        return self.plan.stepper

    @cached_property
    def names(self) -> dict[str, Part]:
        """All weights, and the parts they belong to; looked up once, since a chunk asks many times."""
        return {name: self.model.parts[part_of(name)] for name in self.model.names()}

    @cached_property
    def moving(self) -> list[str]:
        """The weights that local training moves (or, under a gradient protocol, measures)."""
        return [name for name, part in self.names.items() if not part.helper and self._trained(name)]

    @cached_property
    def helpers(self) -> list[str]:
        """The weights that only the defence trains."""
        return [name for name, part in self.names.items() if part.helper and self._trained(name)]

    @cached_property
    def tables(self) -> list[str]:
        """The weights of which a device holds some rows."""
        return [name for name, part in self.names.items() if part.rows == "item"]

    def _trained(self, name: str) -> bool:
        return self.trains is None or part_of(name) in self.trains

    def narrow(self) -> bool:
        """Whether a step may read just the rows it names: the others stay, and nobody reads them."""
        summed_up = overrides(self.model, Recommender, "summary_of_absent_rows")
        return self.stepper.plain and not self.model.history and not summed_up

    def held_still(self, name: str) -> bool:
        """Whether a device only measures the gradient of this weight."""
        return self.protocol.sends_gradients and self.names[name].scope is Scope.SHARED


@dataclass(frozen=True)
class Situation:
    """The knowledge of a chunk of devices when a round begins, beside its own examples."""

    sent: Letter
    keys: Keys  # [c] each client's own, for this round

    def device(self, batch: Batch, keys: Keys, step: int) -> Device:
        """The devices at one step; batch and keys may be those of a prefix of the clients."""
        active = len(keys.value)
        each = {name: value[:active] for name, value in self.sent.each.items()}
        number = torch.tensor([self.sent.round, step], device=keys.value.device)
        sent = {**self.sent.all, **each}
        return Device(batch, sent, self.sent.posts, keys, number[0], number[1])

    @cached_property
    def axes(self) -> Device:
        """The place of the client axis in devices, for `vmap`."""
        sent = dict.fromkeys(self.sent.all) | dict.fromkeys(self.sent.each, 0)
        return Device(0, sent, None, 0, None, None)  # type: ignore[arg-type]


class _Course:
    """The local training of a chunk of devices, as far as it has come.

    Attributes:
        params, state: What devices hold by now: weights, and what their optimisers remember.
        gradient: What devices have measured of weights that they hold still.
        loss: ``[c]`` the mean over the examples so far, of all that are to come.
        done: How many steps the first device has taken.
    """

    def __init__(self, task: LocalTask, portion: Examples, situation: Situation, own: Params) -> None:
        self.task, self.portion, self.situation, self.done = task, portion, situation, 0
        self.params = params = _weights(task, portion, situation.sent, own)
        self.state = {**task.stepper.fresh({n: params[n] for n in task.moving if not task.held_still(n)})}
        self.state |= helper_stepper(task.defence).fresh({n: params[n] for n in task.helpers})
        self.state |= {n: value for n, value in own.items() if n not in params}  # also of what is not trained
        self.gradient = {n: torch.zeros_like(params[n]) for n in params if task.held_still(n)}
        device, dtype = situation.keys.value.device, portion.known.weight.dtype
        self.examples = torch.tensor(portion.sizes, device=device, dtype=dtype)
        self.loss = torch.zeros_like(self.examples)
        paces = portion.paces(task.plan.batch)  # steps an epoch
        self.pace = torch.tensor(paces, device=device)
        # Where a device measures a gradient in one step, that step is all of it.
        self.parted = task.protocol.sends_gradients and task.plan.epochs * max(paces) > 1

    def step(self, batch: Batch, place: Tensor | None, epoch: int, number: int) -> None:
        """One step of the devices that are still at work, the first so many."""
        task, situation, active = self.task, self.situation, len(batch.weight)
        # By each device's own count: what it draws must not depend on how long others are at work.
        keys = Keys(situation.keys.value[:active]).fold("step").fold(epoch * self.pace[:active] + number)
        share = batch.weight.sum(1) / (self.examples[:active] * task.plan.epochs)
        device = situation.device(batch, keys, self.done)
        places = {} if place is None else dict.fromkeys(task.tables, place)
        read = _read(self.params, places, active, task.together)
        help_along(task, read, self.params, self.state, device, situation)
        of_all = share if self.parted else None
        losses, slopes = _slopes(task, read, device, situation, self.done == 0, of_all)
        self.loss[:active] += losses * share
        measured = {name: slopes.pop(name) for name in self.gradient if name in slopes}
        if self.done == 0:
            self._part()
        _measure(self.gradient, measured, share, places, task)
        task.stepper.step(self.params, slopes, self.state, places)
        self.done += 1

    def _part(self) -> None:
        """From the first step on devices differ in what they were sent alike."""
        task = self.task
        alike = [n for n in self.situation.sent.all if n not in task.tables and not task.held_still(n)]
        self.params = {n: w.clone() if n in alike else w for n, w in self.params.items()}

    def after_epoch(self, epoch: int) -> None:
        """Let the defence change the weights that devices train."""
        keys = self.situation.keys.fold("after").fold(epoch)
        device = self.situation.device(self.portion.known, keys, self.done)
        detached = {n: w.detach() for n, w in self.params.items()}
        after = changed(self.task.defence, "after_epoch", detached, device, self.situation.axes)
        self.params = {n: w.clone(memory_format=torch.contiguous_format) for n, w in after.items()}


def train(task: LocalTask, portion: Examples, situation: Situation, own: Params) -> Trained:
    """Local training of a chunk of devices; `own` is what they hold, weights and optimiser state."""
    course, narrow = _Course(task, portion, situation, own), task.narrow()
    for epoch in range(task.plan.epochs):
        for number, (batch, place) in enumerate(portion.steps(epoch, task.plan.batch, narrow=narrow)):
            course.step(batch, place, epoch, number)
        if task.defence.acts("after_epoch"):
            course.after_epoch(epoch)
    return Trained(course.params, course.gradient, course.state, course.loss)


def _weights(task: LocalTask, portion: Examples, sent: Letter, own: Params) -> Params:
    """The stack of weights: what was sent (of item tables the touched rows) and what devices hold.

    What all were sent alike is one tensor behind a stack of views until the first step.
    """
    clients, params = len(portion.sizes), {}
    row = portion.known.rows.clamp(min=0)  # [c, l]
    for name, part in task.names.items():
        if part.scope is not Scope.SHARED:
            params[name] = own[name]
        elif part.rows == "item":
            params[name] = sent.all[name].index_select(0, row.reshape(-1)).unflatten(0, row.shape)
        elif name in task.together:
            params[name] = sent.all[name]
        else:
            wide = sent.all[name].expand(clients, *sent.all[name].shape)
            params[name] = wide.clone() if part.helper else wide
    return params


def _read(params: Params, places: Params, active: int, together: Collection[str]) -> Params:
    """The weights that a step reads: those of the first clients, of some tables only the rows in `places`."""
    read = {}
    for name, weight in params.items():
        some = (weight if name in together else weight[:active]).detach()
        if name in places:
            some = some.gather(1, along(places[name], weight).expand(*places[name].shape, *weight.shape[2:]))
        read[name] = some
    return read


def _measure(gradient: Params, slopes: Params, share: Tensor, places: Params, task: LocalTask) -> None:
    """Add a step's share to the gradients of weights that are only measured; of a sum, it is the only one."""
    for name, slope in slopes.items():
        if name in task.together:
            gradient[name] += slope
            continue
        if task.names[name].loss_is == "round":
            gradient[name][: len(slope)] += slope
            continue
        part = slope * along(share, slope)
        if name in places:
            index = along(places[name], part).expand_as(part)
            gradient[name][: len(slope)].scatter_add_(1, index, part)
        else:
            gradient[name][: len(slope)] += part


def _slopes(
    task: LocalTask, read: Params, device: Device, situation: Situation, first: bool, share: Tensor | None
) -> tuple[Tensor, Params]:
    """``[active]`` losses and the gradient of each weight that moves or is measured."""
    leaves = {n: read[n].requires_grad_() for n in task.moving}
    rest = {n: w for n, w in read.items() if n not in leaves}
    with torch.enable_grad():
        losses = _losses(task, {**leaves, **rest}, device, situation.axes)
        if task.defence.acts("penalty"):
            losses = losses + _penalties(task, {**leaves, **rest}, device, situation.axes, first, share)
        if not leaves:
            return losses.detach(), {}
        slopes = torch.autograd.grad(losses.sum(), list(leaves.values()), allow_unused=True)
    named = {n: slope for n, slope in zip(leaves, slopes, strict=True) if slope is not None}
    return losses.detach(), named


def _losses(task: LocalTask, params: Params, device: Device, axes: Device) -> Tensor:
    """``[active]``: the model's own batched form where it has one, `vmap` over one device otherwise."""
    batched = overrides(task.model, Recommender, "cohort_loss")
    if batched and not overrides(task.protocol, Protocol, "objective"):
        return task.model.cohort_loss(params, device)
    return mapped(task.model, task.protocol.objective, axes)(params, device)


def _penalties(
    task: LocalTask, params: Params, device: Device, axes: Device, first: bool, share: Tensor | None
) -> Tensor | float:
    """``[active]`` what a defence adds to the losses, link by link."""
    return sum(
        loss_of(link, "penalty", task.model, _whole(task, link, params, share), own, axes)
        for link, own in task.defence.acting("penalty", device)
        if first or link.penalty_is == "step"
    )


def _whole(task: LocalTask, link: Defence, params: Params, share: Tensor | None) -> Params:
    """The weights that a penalty reads; that of a round in a way that leaves its gradient whole.

    What is sent adds up the slopes of steps by their `share`. So its slope is divided by that here, but for
    parts whose loss is of a round itself; the value of a weight stays.
    """
    if share is None or link.penalty_is == "step":
        return params
    names = [n for n, part in task.names.items() if task.held_still(n) and part.loss_is == "step"]
    still = {n: params[n].detach() for n in names}
    return params | {n: w + (params[n] - w) / along(share, w) for n, w in still.items()}
