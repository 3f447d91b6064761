"""Outgoing: what a chunk of devices sends once it has trained, its uploads and what consenting users post."""

from __future__ import annotations

import torch
from torch.func import vmap

from veilrec.base.params import Message, Params
from veilrec.defence import Posting, changed
from veilrec.engine.local import LocalTask, Situation
from veilrec.examples import Examples
from veilrec.model import Device, bind
from veilrec.protocol import Trained
from veilrec.wire.uploads import Posts, Uploads

__all__ = ["upload"]


def upload(task: LocalTask, portion: Examples, situation: Situation, trained: Trained) -> Uploads:
    """Make the uploads of trained devices: packed by the protocol, changed by the defence."""
    device = situation.device(portion.known, situation.keys.fold("upload"), 0)

    def pack(device: Device, params: Params, gradient: Params) -> Message:
        return task.protocol.pack(task.model, device, params, gradient)

    packs = pack if task.protocol.packs_as_is else vmap(pack, in_dims=(situation.axes, 0, 0))
    values = packs(device, trained.params, trained.gradient)
    if task.defence.acts("on_upload"):
        values = changed(task.defence, "on_upload", values, device, situation.axes)
    sums: Params = {name: values.pop(name) for name in task.together}  # type: ignore[misc]
    sizes = torch.tensor(portion.sizes, dtype=torch.int32, device=trained.loss.device)
    if task.protocol.needs_examples:
        values["examples"] = sizes
    posting = task.defence.posts(task.model)
    posts = Posts.none(trained.loss.device)
    if posting is not None:
        posts = _posts(task, posting, portion, situation, trained)
    return Uploads(portion.cohort, values, posts, trained.loss, sums)


def _posts(
    task: LocalTask, posting: Posting, portion: Examples, situation: Situation, trained: Trained
) -> Posts:
    """Make the posts of a chunk's consenting users; of labels they see only those they share."""
    known = portion.known
    shared = {n: torch.where(known.consents[n], label, -1) for n, label in known.attributes.items()}
    device = situation.device(known._replace(attributes=shared), situation.keys.fold("publish"), 0)

    def post(params: Params, device: Device) -> Params:
        return bind(task.model, params, posting.make, device)  # type: ignore[no-any-return]

    values = vmap(post, in_dims=(0, situation.axes))(trained.params, device)  # [c, seats, …]
    if not known.consents:
        return Posts.none(trained.loss.device)
    who = posting.willing(known.consents)
    client, seat = who.nonzero(as_tuple=True)
    owner = portion.cohort[client] * who.shape[1] + seat
    return Posts(owner, {name: value[client, seat] for name, value in values.items()})
