"""Gradients: one part of the model as it was sent, and each user's gradient of it, as the server saw it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from veilrec.attack import Public, Seen
from veilrec.base.params import Params, Scope
from veilrec.errors import BadInput, nearest
from veilrec.wire.uploads import Exchange

__all__: list[str] = []  # no entry of the catalogue


class Slopes(NamedTuple):
    """A chunk of users: the weights that all of them were sent, and each one's gradient of these."""

    user: Tensor  # [n]
    weights: Params  # by name within the part, without the user axis; "" where the part is one tensor
    gradient: Params  # the same names, [n, …]


def slopes(seen: Seen, part: str, again: int = 0) -> Iterator[Slopes]:
    """The gradients of a part in the probe round, or in one that is made `again`, chunk by chunk.

    Where devices send trained weights the update stands for the gradient: sent − received, divided by the
    rate where one rate of plain SGD is known. After several local steps it is their sum.

    Raises:
        BadInput: Where no single user's gradient of such a part crosses the wire.
    """
    public = check(seen, part)
    whole = getattr(public.model, part)
    names = [name for name, _ in whole.named_parameters()] if isinstance(whole, nn.Module) else [""]
    for exchange in seen.probe({part}, again):
        yield _chunk(public, part, names, exchange)


def recorded(seen: Seen, part: str, names: Collection[str], round: int) -> Iterator[Slopes]:
    """The gradients of some weights of a part in a round of training that was kept, chunk by chunk."""
    public = check(seen, part)
    assert seen.kept is not None
    for exchange in seen.kept.chunks(round):
        user, weights, gradient = _chunk(public, part, names, exchange)
        where = torch.device(public.device)  # a transcript is read to where the CPU is
        moved = [{name: value.to(where) for name, value in one.items()} for one in (weights, gradient)]
        yield Slopes(user.to(where), *moved)


def _chunk(public: Public, part: str, names: Collection[str], exchange: Exchange) -> Slopes:
    full = {name: f"{part}.{name}" if name else part for name in names}
    weights = {name: exchange.sent.all[full[name]].detach() for name in names}
    gradient = {name: slope_of(public, part, full[name], exchange) for name in names}
    cohort = exchange.received.cohort
    return Slopes(public.seats.to(cohort.device)[cohort, 0], weights, gradient)


def blocks(chunks: Iterable[Slopes], on_cpu: int, on_gpu: int) -> Iterator[Slopes]:
    """The same users in chunks of a given size, whatever the size they came in."""
    waiting: list[Slopes] = []
    for chunk in chunks:
        size = on_cpu if chunk.user.device.type == "cpu" else on_gpu
        waiting.append(chunk)
        while sum(len(part.user) for part in waiting) >= size:
            whole = _joined(waiting)
            yield some_of(whole, slice(size))
            waiting = [some_of(whole, slice(size, None))]
    if waiting and len((whole := _joined(waiting)).user):
        yield whole


def part_for(seen: Seen, part: str, attribute: str) -> str:
    """A part of the model by its name, or, where there is none, the one of an attribute: ``part_gender``."""
    parts = seen.public.model.parts if seen.public is not None else {}
    own = f"{part}_{attribute.replace('.', '_')}"  # a dot would end a part's name
    return own if part not in parts and own in parts else part


def heads_of(seen: Seen, part: str) -> list[str]:
    """All parts that `part_for` may mean by a name."""
    parts = seen.public.model.parts if seen.public is not None else {}
    return [part] if part in parts else [name for name in parts if name.startswith(f"{part}_")] or [part]


def there(seen: Seen, part: str) -> bool:
    """True if the model has such a part, sent to all devices and uploaded whole by each."""
    found = None if seen.public is None else seen.public.model.parts.get(part)
    return found is not None and found.scope is Scope.SHARED and found.rows is None


def check(seen: Seen, part: str) -> Public:
    """The public facts of the method, if each upload holds one user's gradient of the part.

    Raises:
        BadInput: If not.
    """
    if seen.public is None:
        raise BadInput("attack", "there are no uploads to read a gradient from", "attack a federated run")
    parts = seen.public.model.parts
    if part not in parts:
        raise BadInput("attack.part", f'the model has no part "{part}"', nearest(part, parts))
    if parts[part].scope is not Scope.SHARED or parts[part].rows is not None:
        what = f"a table of {parts[part].rows}s" if parts[part].rows else parts[part].scope.value
        raise BadInput(
            "attack.part", f'"{part}" is {what}', "name a part that all share and that is no table"
        )
    if (seats := seen.public.seats.shape[1]) != 1:
        what = f"a client holds up to {seats} users, whose gradients arrive as one sum"
        raise BadInput("attack", what, "attack a federation of phones")
    return seen.public


def source(public: Public, part: str) -> str:
    """A phrase for notes: the quantity that is read as the gradient of a part."""
    if public.gradients:
        return "as uploaded"
    return "update of weights" if _rate(public, part) is None else "update of weights / rate"


def _joined(chunks: list[Slopes]) -> Slopes:
    """All were sent the same weights: it is one round."""
    gradient = {name: torch.cat([chunk.gradient[name] for chunk in chunks]) for name in chunks[0].gradient}
    return Slopes(torch.cat([chunk.user for chunk in chunks]), chunks[0].weights, gradient)


def some_of(chunk: Slopes, which: slice | Tensor) -> Slopes:
    """Some users of a chunk, by their places or a mask over them."""
    gradient = {name: slope[which] for name, slope in chunk.gradient.items()}
    return Slopes(chunk.user[which], chunk.weights, gradient)


def slope_of(public: Public, part: str, name: str, exchange: Exchange) -> Tensor:
    """``[n, …]`` the gradient of one weight, by its whole name, in a chunk of uploads."""
    received = exchange.received.values[name]
    assert isinstance(received, Tensor)  # `check` lets no table through
    if public.gradients:
        return received.detach()
    return (exchange.sent.all[name] - received).detach() / (_rate(public, part) or 1.0)


def _rate(public: Public, part: str) -> float | None:
    """The rate that scales an update; None for helpers, which step with a rate that nobody announces."""
    return None if public.model.parts[part].helper else public.rate
