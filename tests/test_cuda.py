"""The same round on a GPU and on a CPU."""

from __future__ import annotations

import pytest
import torch

from tests.worlds import phones, ragged
from veilrec.defences.none import Undefended
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.plan import Plan
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.mark.parametrize("model", [FedMF, FedNCF])
def test_a_round_agrees_with_the_cpu(model: type[FedMF] | type[FedNCF]) -> None:
    ends = []
    for device in ("cpu", "cuda"):
        clients = phones(ragged())
        made = model(clients.log.n_items, dim=16)
        fed = Federation.of(clients, made, FedAvg(), Undefended(), Plan(rounds=1, lr=0.5), device=device)
        state = fed.run(fed.start())
        everyone = torch.arange(len(clients), device=device)
        ends.append({**state.server, **state.devices.get(everyone)})
        assert fed.evaluate(state, "test").means()["hr@10"] >= 0
    for name, value in ends[0].items():
        assert torch.allclose(value, ends[1][name].cpu(), rtol=0, atol=1e-4), name
