"""veilrec's engine on the work of the other contestants: the same world, its own draws of the same law."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from benchmarks.measurement import Measurement, seconds
from benchmarks.worlds import World
from veilrec.base.keys import Keys
from veilrec.base.plan import Plan
from veilrec.clients import Clients
from veilrec.defences.none import Undefended
from veilrec.engine.evaluation import Evaluation
from veilrec.interactions import Interactions, Split
from veilrec.models.fedncf import FedNCF
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation


def federation(world: World, workers: int, rounds: int, device: str = "cpu") -> Federation:
    """A world as a federation: FedNCF, 64 wide, 128-64-32-1, four negatives, batches of 256, plain SGD."""
    start, item = torch.from_numpy(world.start), torch.from_numpy(world.item)
    user = torch.repeat_interleave(torch.arange(world.shape.users), start[1:] - start[:-1])
    users, items = ([str(k) for k in range(n)] for n in (world.shape.users, world.shape.items))
    log = Interactions(user, item, world.shape.users, world.shape.items, users, items)
    held = torch.from_numpy(world.held)
    clients = Clients.phones(Split(log, torch.full_like(held, -1), held))
    plan = Plan(rounds=rounds + 1, evaluate_every=rounds + 2, workers=workers, lr=0.1)
    model = FedNCF(world.shape.items, dim=64, head=(64, 32))
    judge = Evaluation(metrics=("hr",), ks=(10,), select="hr@10")
    return Federation.of(clients, model, FedAvg(), Undefended(), plan, evaluation=judge, device=device)


def labelled(clients: Clients, classes: Mapping[str, int], consent: float = 0.0) -> Clients:
    """The same clients with random labels: what is learned of them does not matter to the clock."""
    log, keys, held = clients.log, Keys.seed(0), clients.test[:, 0]
    labels = {name: keys.fold(name).integers(count, log.n_users) for name, count in classes.items()}
    names = {name: [str(k) for k in range(count)] for name, count in classes.items()}
    log = replace(log, attributes=labels, classes=names)
    return Clients.phones(Split(log, torch.full_like(held, -1), held), consent=consent)


def measure(world: World, *, workers: int, rounds: int, device: str = "cpu") -> Measurement:
    """Seconds a round of all clients, and of a full ranking."""
    engine = federation(world, workers, rounds, device)
    clock = engine.rounds(engine.start(), until=rounds + 2)
    state, _ = next(clock)
    times = [seconds(lambda: next(clock)) for _ in range(rounds)]
    took = seconds(lambda: engine.evaluate(state, "test").means())
    return Measurement(round_s=times, evaluate_s=took, clients=world.shape.users)
