"""Shares: the data of the clients that live on a rank, on its way there from the leader, who read the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from veilrec.base.params import Params, under
from veilrec.base.tensors import DTYPES, NAMES
from veilrec.clients import Clients
from veilrec.engine.ranks.links import LEADER, Link
from veilrec.engine.ranks.messages import packed, tensors, unpacked
from veilrec.interactions import Interactions
from veilrec.wire import codec

__all__ = ["lean", "receive", "send"]

BYTES = 1 << 20  # of a column that travel at once
COLUMNS = ("seats", "validation", "test", "tags", "number", "people")  # of `Clients`, beside its log


def lean(clients: Clients) -> Clients:
    """The clients without what no device reads of their log, and with the names of all classes."""
    log = clients.log
    classes = {
        name: list(log.classes.get(name, ())) or [str(k) for k in range(int(label.max()) + 1)]
        for name, label in log.attributes.items()
    }
    return replace(clients, log=replace(log, rating=None, time=None, texts=None, values={}, classes=classes))


def send(link: Link, rank: int, clients: Clients) -> None:
    """Send the data of some clients to the rank that they live on, a megabyte at a time."""
    log, columns = clients.log, _columns(clients)
    card = {
        "items": log.n_items,
        "users": list(log.user_ids),
        "classes": dict(log.classes),
        "features": list(log.feature_names),
        "name": log.name,
    }
    shapes = {name: [NAMES[value.dtype], list(value.shape)] for name, value in columns.items()}
    link.send(packed({"do": "share", "card": card, "columns": shapes}), rank)
    for name, value in columns.items():
        for piece in _pieces(value):
            link.send(packed({"of": name}, codec.encode({"rows": piece})), rank)


def receive(link: Link) -> Clients:
    """The clients that live on this rank, when the leader has sent them."""
    head, _ = unpacked(link.receive(LEADER))
    columns: Params = {}
    for name, (dtype, shape) in head["columns"].items():
        columns[name], done = torch.empty(shape, dtype=DTYPES[dtype]), 0
        while done < len(columns[name]):
            rows = tensors(unpacked(link.receive(LEADER))[1][0])["rows"]
            columns[name][done : done + len(rows)] = rows
            done += len(rows)
    return _clients(head["card"], columns)


def _columns(clients: Clients) -> Params:
    """All tensors of some clients, by name. The users of events, which are in order, travel as counts."""
    log = clients.log
    found: Params = {"counts": log.counts, "item": log.item}
    found |= {name: getattr(clients, name) for name in COLUMNS}
    found |= {f"consents/{name}": value for name, value in clients.consents.items()}
    found |= {f"attributes/{name}": value for name, value in log.attributes.items()}
    return found if log.features is None else {**found, "features": log.features}


def _clients(card: Mapping[str, Any], columns: Params) -> Clients:
    """The reverse of `_columns`."""
    counts = columns["counts"]
    log = Interactions(
        user=torch.arange(len(counts)).repeat_interleave(counts),
        item=columns["item"],
        n_users=len(counts),
        n_items=card["items"],
        user_ids=card["users"],
        item_ids=[""] * card["items"],  # a device has no need of the original ids
        attributes=under(columns, "attributes/"),
        classes=card["classes"],
        features=columns.get("features"),
        feature_names=card["features"],
        name=card["name"],
    )
    return Clients(log, consents=under(columns, "consents/"), **{name: columns[name] for name in COLUMNS})


def _pieces(value: Tensor) -> Iterator[Tensor]:
    """A column, so many rows at a time."""
    size = max(1, BYTES // max(1, value[:1].nbytes))
    for first in range(0, len(value), size):
        yield value[first : first + size].cpu()
