"""A device alone: (bytes from the server, its own store) to (bytes to the server, its own store).

Run as ``python -m veilrec.node STORE < message > upload`` it is a process of its own that holds one
device's data and nothing else. It does what the engine does for a cohort of one, so a deployment is a thin
wrapper around it.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from veilrec import tensors, wire
from veilrec.clients import Clients
from veilrec.disk import atomic, read_json, write_json
from veilrec.errors import BadInput, VeilrecError
from veilrec.interactions import Interactions, Split
from veilrec.params import Message, Params
from veilrec.protocol import State
from veilrec.recipe import Recipe, assembly
from veilrec.rounds import Federation
from veilrec.store import Store
from veilrec.uploads import Sent

__all__ = ["answer", "letter", "main", "provision"]

RECIPE, CARD, OWN = "recipe.toml", "node.json", "own.safetensors"


def letter(federation: Federation, state: State) -> bytes:
    """What the server sends to every device of the coming round."""
    message: Message = {**state.server, "round": torch.tensor(state.round, dtype=torch.int32)}
    return wire.encode(message)


def provision(federation: Federation, state: State, client: int, recipe: str, folder: Path) -> None:
    """Write the store of one simulated phone: its own events, labels, weights and settings, nobody else's."""
    clients, log = federation.clients, federation.clients.log
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


def answer(folder: Path, message: bytes) -> bytes:
    """One round of the device whose store is `folder`: changes the store, returns the upload.

    Raises:
        BadInput: If the message is not what the protocol declares; the store stays as it was.
    """
    card, own = read_json(folder / CARD), tensors.read(folder / OWN)
    parts = assembly.build(Recipe.load(folder / RECIPE, has_data=False).values)
    federation = _federation(card, own, parts)
    task, alone = federation.task(), torch.tensor([0])
    sheet = federation.protocol.letter(federation.model, federation.plan.dtype)
    received = {
        name: value for name, value in wire.decode(message, sheet).items() if isinstance(value, Tensor)
    }
    round = int(received.pop("round"))
    sent = Sent(received, {})
    mine = {name: value[None] for name, value in _under(own, "own/").items()}
    state = State(round, received, Store(1, lambda _: mine))
    _, uploads, kept = federation.respond(sent, state, mine, alone, task)
    reply = wire.encode(wire.one({**uploads.values, "examples": uploads.examples}, 0))
    tensors.write(folder / OWN, own | {f"own/{n}": v[0] for n, v in kept.items()}, secret=True)
    return reply


def _federation(card: dict[str, Any], own: Params, parts: dict[str, Any]) -> Federation:
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
    model = parts["model"](card["items"], 1)
    return Federation.of(
        clients, model, parts["protocol"], parts["defence"], parts["plan"], seed=parts["seed"]
    )


def _under(own: Params, prefix: str) -> Params:
    return {name.removeprefix(prefix): value for name, value in own.items() if name.startswith(prefix)}


def main() -> int:
    """``python -m veilrec.node STORE``: the message on standard input, the upload on standard output."""
    if len(sys.argv) != 2:
        print("veilrec: error: node: one argument, the store; python -m veilrec.node STORE", file=sys.stderr)
        return 2
    try:
        folder = Path(sys.argv[1])
        if not (folder / CARD).is_file():
            raise BadInput(folder, "is no device's store", "give the folder that holds node.json")
        sys.stdout.buffer.write(answer(folder, sys.stdin.buffer.read()))
    except VeilrecError as error:
        print(f"veilrec: error: {error}", file=sys.stderr)
        return error.code
    return 0


if __name__ == "__main__":
    sys.exit(main())
