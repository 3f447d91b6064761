"""A device alone: (bytes from the server, its own store) to (bytes to the server, its own store).

Run as ``python -m veilrec.node STORE < message > upload`` it is a process of its own that holds one
device's data and nothing else. It does what the engine does for a cohort of one, so a deployment is a thin
wrapper around it. Noise is the operating system's, which nobody can repeat; with ``--seeded`` it is that of
the simulation, to compare the two.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from veilrec import catalogue, tensors, wire
from veilrec.clients import Clients
from veilrec.disk import atomic, read_json, write_json
from veilrec.errors import BadInput, VeilrecError
from veilrec.interactions import Interactions, Split
from veilrec.model import made
from veilrec.params import Message, Params
from veilrec.protocol import State
from veilrec.recipe import Recipe, assembly
from veilrec.rounds import Federation
from veilrec.store import Store
from veilrec.uploads import Posts, Sent

__all__ = ["answer", "letter", "main", "provision"]

RECIPE, CARD, OWN = "recipe.toml", "node.json", "own.safetensors"
POST = "post/"  # before the names of what consenting users have posted
USAGE = "python -m veilrec.node STORE [--seeded] [--plugin FILE]…"


def letter(federation: Federation, state: State, client: int) -> bytes:
    """What the server sends to a device of the coming round, posts included."""
    sent = federation.protocol.send(state, torch.tensor([client]), federation.keys)
    message: Message = {**sent.all, **{name: value[0] for name, value in sent.each.items()}}
    message |= {POST + name: value for name, value in state.posts.values.items()}
    return wire.encode({**message, "round": torch.tensor(state.round, dtype=torch.int32)})


def provision(federation: Federation, state: State, client: int, recipe: str, folder: Path) -> None:
    """Write the store of one simulated phone: its own events, labels, weights and settings, nobody else's.

    The events are those after `Defence.prepare`, which is therefore not done again on the device.
    """
    clients, log = federation.clients, federation.clients.log
    if clients.n_seats > 1:
        raise BadInput("data.silos", "a silo is more than one person's device", "set it to 0")
    alone = torch.tensor([client], device=clients.seats.device)
    user = int(clients.seats[client, 0])
    own = {f"own/{name}": value[0] for name, value in state.devices.get(alone).items()}
    own["item"] = log.item[log.user == user]
    own |= {f"attribute/{name}": label[user] for name, label in log.attributes.items()}
    own |= {f"consent/{name}": given[client, 0] for name, given in clients.consents.items()}
    if log.features is not None:
        own["features"] = log.features[user]
    folder.mkdir(parents=True, exist_ok=True)
    with atomic(folder / RECIPE) as file:
        file.write(recipe.encode())
    write_json(folder / CARD, {"user": clients.name(client), "items": log.n_items}, secret=True)
    tensors.write(folder / OWN, own, secret=True)


def answer(folder: Path, message: bytes, *, seeded: bool = False) -> bytes:
    """One round of the device whose store is `folder`: changes the store, returns the upload.

    Args:
        folder: The store.
        message: What the server sent.
        seeded: Draw noise from the experiment's keys, as a simulation does: not private.

    Raises:
        BadInput: If the message is not what the protocol declares; the store stays as it was.
    """
    card, own = read_json(folder / CARD), tensors.read(folder / OWN)
    parts = assembly.build(Recipe.load(folder / RECIPE, has_data=False).values)
    federation = _federation(card, own, parts, seeded=seeded)
    task, alone = federation.task(), torch.tensor([0])
    sheet = federation.protocol.letter(federation.model, federation.plan.dtype)
    received = _tensors(wire.decode(message, sheet, freely=POST))
    round, posts = int(received.pop("round")), _under(received, POST)
    common = {name: value for name, value in received.items() if not name.startswith(POST)}
    sent = Sent(common, {})
    mine = {name: value[None] for name, value in _under(own, "own/").items()}
    state = State(round, common, Store(1, lambda _: mine), posts=Posts(torch.zeros(0), posts))
    _, uploads, kept = federation.respond(sent, state, mine, alone, task)
    reply = wire.encode(wire.one({**uploads.values, "examples": uploads.examples}, 0))
    tensors.write(folder / OWN, own | {f"own/{n}": v[0] for n, v in kept.items()}, secret=True)
    return reply


def _federation(card: dict[str, Any], own: Params, parts: dict[str, Any], *, seeded: bool) -> Federation:
    """A federation of one phone, with the clock and the keys of the large one."""
    log = Interactions(
        user=torch.zeros_like(own["item"]),
        item=own["item"],
        n_users=1,
        n_items=card["items"],
        user_ids=[card["user"]],
        item_ids=[""] * card["items"],  # a device has no need of the original ids
        attributes={name: label[None] for name, label in _under(own, "attribute/").items()},
        features=own["features"][None] if "features" in own else None,
    )
    nobody = torch.tensor([-1])
    given = {name: consent[None, None] for name, consent in _under(own, "consent/").items()}
    clients = replace(Clients.phones(Split(log, nobody, nobody)), consents=given)
    width = own["features"].shape[-1] if "features" in own else 0
    model = made(parts["model"], card["items"], 1, width)
    defence = parts["defence"] if seeded else parts["defence"].on_device()
    kinds = parts["protocol"], defence, parts["plan"]
    return Federation.of(clients, model, *kinds, seed=parts["seed"], prepare=False)


def _tensors(message: Message) -> Params:
    return {name: value for name, value in message.items() if isinstance(value, Tensor)}


def _under(own: Params, prefix: str) -> Params:
    return {name.removeprefix(prefix): value for name, value in own.items() if name.startswith(prefix)}


def main(arguments: Sequence[str] | None = None) -> int:
    """``python -m veilrec.node STORE``: the message on standard input, the upload on standard output."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    seeded = "--seeded" in given
    folder, *rest = [*(word for word in given if word != "--seeded"), ""]
    flags, files = rest[:-1:2], rest[1:-1:2]
    try:
        if not folder or len(flags) != len(files) or {*flags} - {"--plugin"}:
            raise BadInput("node", "the arguments are a store and plugins", USAGE)
        if not (Path(folder) / CARD).is_file():
            raise BadInput(folder, "is no device's store", f"give the folder that holds {CARD}")
        for path in files:
            catalogue.load_plugin(Path(path))
        sys.stdout.buffer.write(answer(Path(folder), sys.stdin.buffer.read(), seeded=seeded))
    except VeilrecError as error:
        print(f"veilrec: error: {error}", file=sys.stderr)
        return error.code
    return 0


if __name__ == "__main__":
    sys.exit(main())
