"""Ranks on a GPU end where one process on that GPU does: two may share it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.engine.ranks.pipes import ranked
from tests.worlds import SHORT, checkerboard, largest, phones, ragged
from veilrec.base.params import Params
from veilrec.base.plan import Plan
from veilrec.defences.laplace import Laplace
from veilrec.defences.none import Undefended
from veilrec.defences.pard import PARD
from veilrec.engine.evaluation import Evaluation
from veilrec.engine.probe import probe, user_vectors
from veilrec.erasers.gaussian_posthoc import GaussianPosthoc
from veilrec.models.fedncf import FedNCF
from veilrec.models.fedrap import FedRAP
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

PARTS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "everybody": (FedNCF, Undefended(), {}),
    "cohorts": (FedNCF, Undefended(), {"cohort": 0.6}),
    "one sum": (FedNCF, Undefended(), {"forwards": "all"}),
    "own tables": (FedRAP, Undefended(), {}),
    "posts": (FedNCF, PARD(), {}),
    "a budget by row": (FedNCF, Laplace(), {"budget": 1e9}),
}


def made(name: str) -> Federation:
    model, defence, plan = PARTS[name]
    clients = phones(checkerboard() if name == "posts" else ragged(SHORT, 120), 0.5)
    options = {} if name in ("own tables", "posts") else {"user": "exposed"}
    return Federation.of(
        clients,
        model(clients.log.n_items, dim=4, **options),
        FedAvg(),
        defence,
        Plan(**{"rounds": 3, "lr": 0.3, "batch": 8, "chunk": 2, "workers": 1, **plan}),
        device="cuda",
        evaluation=Evaluation(candidates=4),
    )


def outcome(fed: Federation) -> dict[str, Params]:
    """All that a run asks of its fleet."""
    state = fed.run(fed.start())
    devices, able = fed.fleet.devices, fed.able
    touched = fed.fleet.touched(fed.letter(state, able), able)
    sent = {
        f"{name}/{client}": value[k].cpu()
        for exchange in probe(fed, state)
        for k, client in enumerate(exchange.received.cohort.tolist())
        for name, value in exchange.received.values.items()
        if isinstance(value, torch.Tensor)
    }
    found = {
        "server": dict(state.server),
        "devices": devices.get(devices.clients().sort().values),
        "judged": dict(fed.evaluate(state).values),
        "floor": dict(fed.fleet.floor().values),
        "sent": sent,
        "read": {"touched": touched, "vectors": user_vectors(fed, state)},
    }
    fed.erase(state, GaussianPosthoc({"item": 0.5, "user": 0.5}), fed.keys)
    return found | {"erased": devices.get(devices.clients().sort().values)}


@pytest.mark.parametrize("name", PARTS)
def test_two_ranks_end_where_one_process_does(name: str) -> None:
    one = outcome(made(name))
    with ranked(lambda: made(name), 2) as fed:
        assert fed.fleet.home.is_cuda
        other = outcome(fed)
    for what, values in one.items():
        assert values.keys() == other[what].keys(), what
        for weight, value in values.items():
            assert largest(value.cpu(), other[what][weight].cpu()) < 1e-5, (what, weight)
