"""Small worlds with known answers, and short ways to put a federation into them."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from veilrec.base.files import Digest
from veilrec.base.keys import Keys
from veilrec.base.params import Params, Scope
from veilrec.base.plan import Plan
from veilrec.base.tensors import Blocks
from veilrec.clients import Batch, Clients
from veilrec.defence import Defence
from veilrec.defences.none import Undefended
from veilrec.engine.devices.store import Keeps, Store
from veilrec.interactions import Interactions
from veilrec.model import Recommender
from veilrec.protocol import Protocol, State
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation
from veilrec.runs.integrity.manifest import Manifest
from veilrec.wire.uploads import Exchange

RAGGED = (1, 2, 3, 5, 9, 17, 40, 100, 257, 600, 1200, 2000)  # training events of each client
SHORT = (1, 2, 3, 5, 9, 17, 33, 70)


def checkerboard(n: int = 24) -> Interactions:
    """`n` users and `n` items: even users like even items and odd ones odd items; gender is that parity.

    User u touches u, u + 2, … around the board: u - 2 is held out for the test and u - 4 for validation.
    """
    user = torch.arange(n).repeat_interleave(n // 2)
    step = torch.arange(n // 2).repeat(n)
    parity = torch.arange(n) % 2
    return Interactions.build(
        user,
        (user + 2 * step) % n,
        [f"person {k}" for k in range(n)],
        [f"thing {k}" for k in range(n)],
        time=step,
        attributes={"gender": parity},
        classes={"gender": ["even", "odd"]},
        name="checkerboard",
    )


def ragged(sizes: Sequence[int] = RAGGED, n_items: int = 2200) -> Interactions:
    """Users with the given numbers of training events, and two events more that are held out."""
    keys = Keys.seed(7).fold("ragged")
    items = [keys.fold(k).order(n_items)[: size + 2] for k, size in enumerate(sizes)]
    return Interactions.build(
        torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor([len(i) for i in items])),
        torch.cat(items),
        [f"user {k}" for k in range(len(sizes))],
        [f"item {k}" for k in range(n_items)],
        time=torch.cat([torch.arange(len(i)) for i in items]),
        attributes={"gender": torch.arange(len(sizes)) % 2, "age": torch.arange(len(sizes)) % 3},
        name="ragged",
    )


def log_of(*events: tuple[int, int, int], users: int = 0, items: int = 0, **rest: Any) -> Interactions:
    """A log from ``(user, item, time)`` rows."""
    user, item, time = (torch.tensor(column, dtype=torch.int64) for column in zip(*events, strict=True))
    user_ids = [f"u{k}" for k in range(users or int(user.max()) + 1)]
    item_ids = [f"i{k}" for k in range(items or int(item.max()) + 1)]
    return Interactions.build(user, item, user_ids, item_ids, time=time, **rest)


def batch(item: list[int], negative: list[list[int]], n_items: int = 3) -> Batch:
    """A step of the only user of a device that holds all items, written by hand."""
    return Batch.by_hand(n_items, item=item, negative=negative)


def phones(log: Interactions, consent: float = 0.0) -> Clients:
    """One client per user, leave-one-out."""
    return Clients.phones(log.leave_one_out(), consent=consent)


def silos(log: Interactions, n: int, consent: float = 0.0) -> Clients:
    """`n` clients with many users each, leave-one-out."""
    return Clients.silos(log.leave_one_out(), n, consent=consent)


def federation(
    clients: Clients,
    model: Recommender,
    protocol: Protocol | None = None,
    defence: Defence | None = None,
    *,
    seed: int = 0,
    evaluation: Any = None,
    **plan: Any,
) -> Federation:
    """A federation of one worker that never looks at validation items, unless told otherwise."""
    settings = {"rounds": 1, "workers": 1, "evaluate_every": 10**6, **plan}
    return Federation.of(
        clients,
        model,
        protocol or FedAvg(),
        defence or Undefended(),
        Plan(**settings),
        seed=seed,
        evaluation=evaluation,
    )


@dataclass(frozen=True, kw_only=True)
class Both(State):
    """The state of both halves: what the server remembers, and a copy of what devices hold."""

    devices: Store


def copied(store: Store) -> Store:
    """A store of the same contents and kind, independent of what happens next."""
    keeps: Keeps = "memory" if store.shelf is None else "disk"
    twin, clients = Store.of(keeps, len(store.slot), store.fresh, store.slot.device), store.clients()
    if len(clients):
        twin.put(clients, store.get(clients))
    return twin


def emptied(fed: Federation) -> Store:
    """The store of devices that have not begun."""
    fed.fleet.begin()
    return fed.fleet.devices


def both(fed: Federation, state: State) -> Both:
    """A server's state beside what the devices hold now."""
    fields = {name: getattr(state, name) for name in ("round", "server", "memory", "posts")}
    return Both(**fields, devices=copied(fed.fleet.devices))


def begin(fed: Federation) -> Both:
    """The state of both halves before the first round."""
    return both(fed, fed.start())


def run(fed: Federation, rounds: int = 1, **rest: Any) -> Both:
    """The state after some rounds from the start, without a look at validation items."""
    return resume(fed, begin(fed), rounds, **rest)


def resume(fed: Federation, state: State, until: int, **rest: Any) -> Both:
    """The state after round `until`, or where a defence stopped; one round more would end with a look."""
    if isinstance(state, Both):  # else the devices go on from where they are
        fed.fleet.devices = copied(state.devices)
    done = state
    for one, _ in fed.rounds(state, until=until + 1, **rest):
        done = one
        if done.round == until:
            break
    return both(fed, done)


def changed(fed: Federation, **changes: Any) -> Federation:
    """The same federation with other settings and the same devices."""
    fleet = replace(fed.fleet, **changes)
    fleet.devices = fed.fleet.devices
    return Federation(fleet, fleet.protocol.make_server(fleet.shape))


def everyone(fed: Federation) -> Tensor:
    """``[clients]`` all of them."""
    return torch.arange(len(fed.clients))


def held(fed: Federation, state: State) -> Params:
    """What every device holds: weights and optimiser state, client axis first."""
    devices = state.devices if isinstance(state, Both) else fed.fleet.devices
    return devices.get(everyone(fed))


def uploads_of(fed: Federation, rounds: int = 1) -> tuple[Both, dict[int, tuple[Exchange, int]]]:
    """The state after some rounds, and each client's last upload: the exchange and the place in it."""
    seen: dict[int, tuple[Exchange, int]] = {}

    def watch(exchange: Exchange) -> None:
        seen.update({client: (exchange, k) for k, client in enumerate(exchange.received.cohort.tolist())})

    return run(fed, rounds, watch=[watch]), seen


def digest(state: Both) -> str:
    """A fingerprint of everything a federation remembers."""
    parts = {
        **{f"server/{n}": w for n, w in state.server.items()},
        **{f"memory/{n}": w for n, w in state.memory.items()},
        **{f"devices/{n}": w for n, w in contents(state.devices).items()},
        **{f"posts/{n}": w for n, w in state.posts.values.items()},
        "posted": state.posts.owner,
    }
    whole = hashlib.sha256(str(state.round).encode())
    for name in sorted(parts):
        whole.update(name.encode())
        whole.update(parts[name].detach().contiguous().numpy().tobytes())
    return whole.hexdigest()


def contents(store: Store) -> Params:
    """A store's state as tensors of their own."""
    found = {n: tuple(v.rows()) if isinstance(v, Blocks) else (v,) for n, v in store.state().items()}
    return {name: torch.cat(some) for name, some in found.items()}


def with_scope(model: Recommender, name: str, scope: Scope) -> Recommender:
    """A copy of `model` with one part moved."""
    moved = copy.deepcopy(model)
    moved.parts = {**model.parts, name: replace(model.parts[name], scope=scope)}
    return moved


def largest(a: Tensor, b: Tensor) -> float:
    """The largest difference between two tensors of one shape."""
    assert a.shape == b.shape
    return float((a.double() - b.double()).abs().max()) if a.numel() else 0.0


def files_of(run: Path) -> dict[str, Digest]:
    """The checksums of what a finished run holds, without what no two runs share."""
    files = Manifest.load(run).files
    return {name: entry for name, entry in files.items() if name not in ("result.json", "timing.jsonl")}
