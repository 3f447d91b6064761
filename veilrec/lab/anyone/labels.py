"""Labels from a file of somebody's, in the place of those that a run knows, or no longer knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from veilrec.errors import BadInput
from veilrec.interactions import Interactions
from veilrec.lab.attributes import Described

__all__ = ["labelled"]


def labelled(data: Interactions, described: Described) -> Interactions:
    """A log whose users have the classes of a file; of who is not in it nothing is known there.

    Raises:
        BadInput: Where nobody is in both.
    """
    row = {name: place for place, name in enumerate(described.ids)}
    rows = torch.tensor([row.get(name, -1) for name in data.user_ids])
    if not bool((rows >= 0).any()):
        what = f'no ids in common with the run ("{described.ids[0]}" here, "{data.user_ids[0]}" there)'
        raise BadInput(described.where, what, "ids match only if written alike")
    labels: Mapping[str, Tensor] = {
        name: torch.where(rows >= 0, torch.from_numpy(one.codes).long()[rows.clamp(min=0)], -1)
        for name, one in described.labels.items()
    }
    classes: Mapping[str, Sequence[str]] = {name: one.classes for name, one in described.labels.items()}
    values = {name: value for name, value in data.values.items() if name not in labels}
    return replace(
        data,
        attributes={**data.attributes, **labels},
        classes={**data.classes, **classes},
        values=values,
    )
