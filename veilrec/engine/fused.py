"""Fused: weights whose gradients are summed in one backward pass, where nobody reads them one by one.

A model of which every device moves every weight would be copied as often as there are devices, and each copy
would have a gradient of its own, only for the server to add them up. Where a round is one gradient of what is
shared, where no defence acts on single uploads and where nobody looks at them, their sum is the gradient of
the sum of the losses: equal to the sum of the copies' up to rounding, and as cheap as one large batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from veilrec.base.params import Scope, part_of
from veilrec.defence import Defence
from veilrec.engine.local import LocalTask
from veilrec.model import Recommender
from veilrec.wire import codec
from veilrec.wire.codec import Schema
from veilrec.wire.uploads import Uploads

__all__ = ["apart", "check", "read_by", "summed", "weights_of"]

READS = "reads"  # what a watch may say of itself: names of an upload that it looks at; without it, all
STEPS = 16  # events for which a dense model's device counts in a chunk: its step costs the same for all


def summed(task: LocalTask, sizes: Iterable[int], read: Collection[str] | None) -> frozenset[str]:
    """The SHARED weights of which only the sum over devices is needed; `read` are looked at one by one.

    Args:
        task: What devices are asked to do.
        sizes: Events of each device.
        read: The weights that watches look at; None for all.
    """
    model, plan = task.model, task.plan
    once = plan.epochs == 1 and max(sizes, default=0) <= plan.batch
    sums = task.protocol.accepts_sums and task.protocol.packs_as_is
    if read is None or not (model.dense and once and sums and lets(task.defence)):
        return frozenset()
    return frozenset(n for n in model.names(Scope.SHARED) if n not in read and _plain(model, n))


def lets(defence: Defence) -> bool:
    """Whether a defence leaves uploads alone, and has no penalty that expects a copy for each device."""
    acts = any(defence.acts(hook) for hook in ("after_epoch", "on_upload", "posts", "helper_loss"))
    return not acts and not any("penalty" in link.leads for link in defence.links)


def read_by(watches: Iterable[Callable[..., Any]]) -> set[str] | None:
    """The names of an upload that some watches look at; None where one does not say."""
    found: set[str] = set()
    for watch in watches:
        names = getattr(watch, READS, None)
        if names is None:
            return None
        found.update(names)
    return found


def weights_of(model: Recommender, parts: Collection[str] | None) -> set[str] | None:
    """The weights of some parts; None for all."""
    return None if parts is None else {name for name in model.names() if part_of(name) in parts}


def apart(model: Recommender, together: Collection[str]) -> int:
    """The number of a dense model's values of which each device has a copy."""
    names = [n for n in model.names(Scope.SHARED) if n not in together] if model.dense else []
    return sum(model.get_parameter(name).numel() for name in names)


def check(uploads: Uploads, schema: Schema) -> None:
    """Refuse uploads that are not what the schema says, those that came as a sum included."""
    each = {name: spec for name, spec in schema.items() if name not in uploads.sums}
    codec.check(uploads.values, each, lead=(len(uploads.cohort),))
    codec.check({**uploads.sums}, {name: schema[name] for name in uploads.sums})


def _plain(model: Recommender, name: str) -> bool:
    part = model.parts[part_of(name)]
    return part.rows is None and not part.helper
