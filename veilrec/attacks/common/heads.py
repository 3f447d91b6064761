"""Heads: a classifier on a user's vector that is a part of the model, and attacks on its gradient."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from veilrec.attack import Attack, Public, Seen, Task
from veilrec.attacks.common.gradients import check, heads_of, part_for, source, there
from veilrec.base.keys import Keys
from veilrec.base.params import Params
from veilrec.errors import BadInput

__all__: list[str] = []  # no entry of the catalogue


class Layer(NamedTuple):
    """One linear layer: its module, the names of its weights, and which axis of the matrix counts outputs.

    `nn.Linear` holds ``[out, in]``. Other layers are taken to compute ``x @ weight`` and hold ``[in, out]``,
    as this library's own do, unless the length of their bias says otherwise.
    """

    module: nn.Module
    weight: str
    bias: str  # "" where it has none
    out: int  # 0 or 1

    @property
    def inputs(self) -> int:
        """The number of inputs."""
        return int(self.matrix.shape[1 - self.out])

    @property
    def matrix(self) -> Tensor:
        """The module's own, whose values mean nothing."""
        found = self.module.weight
        assert isinstance(found, Tensor)
        return found

    def rows(self, gradient: Params) -> Tensor:
        """``[n, out, in]`` the gradient of the matrix, one row per output."""
        slope = gradient[self.weight]
        return slope if self.out == 0 else slope.transpose(1, 2)


def layers(whole: nn.Module) -> list[Layer]:
    """The linear layers of a module: those that hold a matrix called ``weight``, in their order."""
    found = []
    for name, module in whole.named_modules():
        weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
        if isinstance(weight, nn.Parameter) and weight.dim() == 2:
            lead = f"{name}." if name else ""
            own = f"{lead}bias" if isinstance(bias, nn.Parameter) else ""
            found.append(Layer(module, f"{lead}weight", own, _out(module, weight, bias)))
    return found


def _out(module: nn.Module, weight: Tensor, bias: Any) -> int:
    if isinstance(module, nn.Linear):
        return 0
    turned = isinstance(bias, Tensor) and len(bias) == weight.shape[0] != weight.shape[1]
    return 0 if turned else 1


@dataclass(frozen=True)
class Head:
    """A classifier: from a user's vector to one logit per class.

    A head that draws random numbers declares ``draws = True`` and takes keys as its second argument; an
    attacker replays it with keys of its own.
    """

    module: nn.Module
    first: Layer
    last: Layer
    classes: int

    @classmethod
    def of(cls, public: Public, part: str) -> Head:
        """The head that a part of the model is.

        Raises:
            BadInput: Where it has no linear layer.
        """
        module = getattr(public.model, part)
        found = layers(module) if isinstance(module, nn.Module) else []
        if not found:
            raise BadInput("attack.part", f'"{part}" is no classifier', "name a part with linear layers")
        head = cls(module, found[0], found[-1], 0)
        blank = {name: torch.zeros(weight.shape) for name, weight in module.named_parameters()}
        logits = head.logits(blank, torch.zeros(found[0].inputs), Keys.seed(0))
        return cls(module, found[0], found[-1], len(logits))

    def logits(self, weights: Params, vector: Tensor, keys: Keys) -> Tensor:
        """``[classes]`` the logits of one vector ``[dim]``; `vmap` it for many."""
        drawn = (keys,) if getattr(self.module, "draws", False) else ()
        return functional_call(self.module, weights, (vector[None], *drawn))[0]  # type: ignore[no-any-return]

    def before_last(self, weights: Params, vector: Tensor, keys: Keys) -> tuple[Tensor, Tensor]:
        """``[in]`` the input of the last layer for one vector, and the ``[classes]`` logits."""
        given: list[Tensor] = []
        hook = self.last.module.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0][0]))
        try:
            logits = self.logits(weights, vector, keys)
        finally:
            hook.remove()
        return given[-1], logits

    def class_rows(self, gradient: Params) -> Tensor:
        """``[n, classes, in]`` the last matrix's gradient, one row per class.

        A last layer with more outputs than there are classes gives means first, then spreads (FedAU², §4.3).
        """
        return self.last.rows(gradient)[:, : self.classes]


class OnGradient(Attack):
    """The base of DLG and iDLG: both need one user's gradient of a head with as many classes as the task.

    With `kept` it is read in the rounds of training that were kept, and not in the probe. Users who are in
    none of them are guessed blindly, and counted in the notes as `unseen`.
    """

    part: str

    @abstractmethod
    def looks_at(self, head: Head) -> list[str]:
        """The weights of the head whose gradients it looks at."""

    @property
    def family(self) -> str:
        return "gradient"

    def answers(self, seen: Seen, task: Task) -> bool:
        part = part_for(seen, self.part, task.attribute)
        if seen.public is None or not there(seen, part):
            return False
        return Head.of(seen.public, part).classes == task.classes

    def refuses(self, public: Public | None, grants: Collection[str]) -> str:
        if public is None or public.seats.shape[1] == 1:
            return ""
        return "a client's gradient is that of all its users together; attack a federation of phones"

    def notes(self, seen: Seen) -> dict[str, Any]:
        parts = heads_of(seen, self.part)
        told = {"gradient": ", ".join(dict.fromkeys(source(check(seen, part), part) for part in parts))}
        if not self.kept or seen.kept is None or seen.public is None:
            return told
        clients = torch.cat([seen.kept.cohort(round) for round in seen.kept.rounds]).unique()
        missing = seen.public.n_users - len(clients)  # a client is a phone: `check`
        return {**told, "rounds": len(seen.kept.rounds), **({"unseen": missing} if missing else {})}

    def keeps(self, seen: Seen, task: Task) -> list[str]:
        if not self.kept or not self.answers(seen, task):
            return []
        head, part = self._head(seen, task)
        return [f"{part}.{name}" for name in self.looks_at(head)]

    def _check_kept(self, seen: Seen, task: Task) -> None:
        """Refuse where it should read kept rounds, and there are none with all that it looks at."""
        wanted = self.keeps(seen, task)
        if wanted and (seen.kept is None or not all(map(seen.kept.holds, wanted))):
            fix = "train again with [record] last above 0, and the head among its parts"
            raise BadInput("record", f'no round of training was kept with all of "{wanted[0]}"', fix)

    def _head(self, seen: Seen, task: Task) -> tuple[Head, str]:
        """The head that tells the task's classes, and its part."""
        part = part_for(seen, self.part, task.attribute)
        head = Head.of(check(seen, part), part)
        if head.classes != task.classes:
            what = f'"{part}" tells {head.classes} classes apart, {task.attribute or "the task"} has'
            raise BadInput("attack.part", f"{what} {task.classes}", "name the head of that attribute")
        return head, part
