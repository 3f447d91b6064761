"""A net for each item of the tables that devices keep: planted labels, a loop over the items, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.attacks.heads import task_of, world
from tests.worlds import federation, phones, run, silos
from veilrec.attack import Granted, Seen, Task
from veilrec.attacks.item_nets import ItemNets
from veilrec.base.keys import Keys
from veilrec.base.plan import Plan
from veilrec.clients import Clients
from veilrec.engine.devices import private_rows
from veilrec.engine.devices.private_rows import KEPT, ROW
from veilrec.engine.probe import public, see, tables
from veilrec.errors import BadInput
from veilrec.experiment import Experiment
from veilrec.lab.threat import Threat
from veilrec.models.fedmf import FedMF
from veilrec.models.fedrap import FedRAP

USERS, ITEMS, WIDTH = 200, 12, 4
LR = {"residual": 0.5, "default": 1.0}


def fed_of(clients: Clients) -> Any:
    return federation(clients, FedRAP(60, clients.n_seats, dim=WIDTH), None, None, lr=LR, chunk=7)


def granted(value: Tensor) -> Seen:
    """What an attacker has who is given tables, and nothing else worth reading."""
    told = public(fed_of(phones(world(24))))
    return Seen(told, lambda *_: iter(()), Granted(tables=lambda users: value[users]))


def planted(strength: float) -> tuple[Tensor, Tensor]:
    """Tables of noise, and a label that moves one column of one item."""
    keys = Keys.seed(4)
    value, label = keys.fold("noise").normal(USERS, ITEMS, WIDTH), keys.fold("label").integers(2, USERS)
    value[:, 3, 2] += strength * (2 * label - 1)
    return value, label


def half(label: Tensor, seed: int = 0) -> Task:
    known = torch.where(torch.arange(len(label)) % 2 == 0, label, -1)
    return Task(known, 2, seed, "gender")


@pytest.mark.parametrize("crowd", ["phones", "silos"])
def test_the_tables_are_what_devices_keep(crowd: str) -> None:
    clients = phones(world(30)) if crowd == "phones" else silos(world(30), 4)
    fed = fed_of(clients)
    state = run(fed, 2)
    users = torch.tensor([7, 0, 29, 11])
    found = tables(fed, state, users)
    assert found.shape == (4, 60, WIDTH)
    for place, user in enumerate(users.tolist()):
        client, seat = ((clients.seats == user).nonzero()[0]).tolist()
        own = fed.fleet.devices.get(torch.tensor([client]), [ROW, KEPT + "residual"])
        rows = own[ROW][0]
        wanted = torch.zeros(60, WIDTH)
        wanted[rows[rows >= 0]] = own[KEPT + "residual"][0, rows >= 0, seat]
        assert torch.equal(found[place], wanted)
        assert wanted.abs().sum() > 0


def test_the_tables_of_a_silo_are_widened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many of its users are asked for: once for each would be its size times itself."""
    clients = silos(world(30), 4)
    fed = fed_of(clients)
    state, asked, whole = run(fed, 1), list[int](), private_rows.whole
    monkeypatch.setattr(private_rows, "whole", lambda *args: asked.extend(args[2].tolist()) or whole(*args))
    assert tables(fed, state, torch.arange(30)).shape == (30, 60, WIDTH)
    assert asked == list(range(len(clients)))


def test_a_planted_label_is_found_and_noise_is_not() -> None:
    for strength, low, high in ((6.0, 0.95, 1.0), (0.0, 0.3, 0.7)):
        value, label = planted(strength)
        task = half(label)
        right = (ItemNets().infer(granted(value), task).argmax(1) == label)[task.known < 0]
        assert low <= float(right.double().mean()) <= high


def test_the_mean_over_items_by_a_loop() -> None:
    value, label = planted(1.0)
    attack, task = ItemNets(hidden=5, steps=3), half(label)
    nets = attack._fit(value[task.labelled], label[task.labelled], task)
    logits = torch.zeros(USERS, 2)
    for item in range(ITEMS):
        first, inner, last, outer = (weight[item] for weight in nets)
        logits += ((value[:, item] @ first + inner).relu() @ last + outer) / ITEMS
    assert torch.allclose(attack.infer(granted(value), task), logits.softmax(1).double(), atol=1e-6)


def test_the_first_step_by_hand() -> None:
    """Adam's first step is the rate, by the sign of the gradient, which autograd over one item tells."""
    value, label = planted(1.0)
    one, task = value[:, 3:4], half(label)
    attack = ItemNets(hidden=5, steps=1, lr=0.1)
    before = [weight.detach().clone().requires_grad_() for weight in attack._fresh(one[task.labelled], task)]
    x, y = one[task.labelled, 0], label[task.labelled]
    first, inner, last, outer = (weight[0] for weight in before)
    torch.nn.functional.cross_entropy((x @ first + inner).relu() @ last + outer, y).backward()
    for old, new in zip(before, attack._fit(one[task.labelled], y, task), strict=True):
        assert old.grad is not None
        sure = old.grad.abs() > 1e-4
        assert sure.any()
        assert torch.allclose((new - old)[sure], -0.1 * old.grad[sure].sign(), atol=1e-4)


def test_same_seed_same_bits_and_targets_do_not_matter() -> None:
    value, label = planted(1.0)
    task, attack = half(label), ItemNets(steps=5)
    told = attack.infer(granted(value), task)
    assert torch.equal(told, attack.infer(granted(value), task))
    assert not torch.equal(told, attack.infer(granted(value), half(label, seed=1)))
    other = value.clone()
    other[1::2] = 0
    assert torch.equal(attack.infer(granted(other), task)[::2], told[::2])


def test_what_cannot_be_attacked_is_refused() -> None:
    plain = federation(phones(world(24)), FedMF(60, 1, dim=4))
    assert "no device keeps an item table" in ItemNets().refuses(public(plain), ("tables",))
    told = public(fed_of(phones(world(24))))
    assert told.tables == ["residual"]
    assert 'grant "tables"' in ItemNets().refuses(told, ())
    assert ItemNets().refuses(told, ("tables",)) == ""
    assert not ItemNets().answers(see(plain, plain.start(), ("tables",)), task_of(24))
    fed = fed_of(phones(world(24)))
    with pytest.raises(BadInput, match='grant "tables"'):
        ItemNets().infer(see(fed, fed.start()), task_of(24))


@pytest.mark.parametrize("wrong", [{"hidden": 0}, {"steps": 0}, {"lr": 0.0}])
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=rf"attack\.{next(iter(wrong))}"):
        ItemNets(**wrong)


def test_a_run_is_attacked_by_the_papers_protocol(tmp_path: Path) -> None:
    data = world(300)
    threat = Threat(("gender",), own=False, also=("fedau2-items",))
    plan = Plan(rounds=15, workers=1, lr=LR)
    result = Experiment(data, FedRAP, plan=plan, threat=threat).run(tmp_path / "run")
    found = result.privacy["fedau2-items"]["attributes"]["gender"]["attackers"]
    (one,) = [each for each in found if each["name"] == "ItemNets"]
    assert one["notes"] == {"tables": "residual"}
    assert one["scores"]["auc"]["value"] > 0.6  # tables hold who touched what, and that tells it
