"""The same round on a GPU and on a CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.worlds import phones, ragged
from veilrec.base.plan import Plan
from veilrec.defence import Defence
from veilrec.defences.apm import APM
from veilrec.defences.fedau2 import FedAU2
from veilrec.defences.none import Undefended
from veilrec.defences.pard import PARD
from veilrec.defences.uc_fedrec import UCFedRec
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.models.fedrap import FedRAP
from veilrec.models.fedvae import FedVAE
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

PAIRS: dict[str, tuple[type[FedMF], Defence]] = {
    "FedMF": (FedMF, Undefended()),
    "FedNCF": (FedNCF, Undefended()),
    "APM": (FedMF, APM()),
    "PARD": (FedNCF, PARD()),
    "UC-FedRec": (FedNCF, UCFedRec()),
}


@pytest.mark.parametrize("model", [FedNCF, FedVAE, FedRAP])
def test_unlearning_in_several_steps_agrees_with_the_cpu(model: Any) -> None:
    ends = []
    for device in ("cpu", "cuda"):
        clients = phones(ragged((9, 14, 30), 60))
        made = model(60, dim=8)
        protocol = FedAvg(sends="gradients", server="sgd", server_lr=0.01)
        plan = Plan(rounds=2, lr=0.1, batch=4)
        fed = Federation.of(clients, made, protocol, FedAU2(hidden=6), plan, device=device)
        ends.append(fed.run(fed.start()).server)
    for weight, value in ends[0].items():
        assert torch.allclose(value, ends[1][weight].cpu(), rtol=0, atol=1e-4), weight


@pytest.mark.parametrize("name", PAIRS)
def test_two_rounds_agree_with_the_cpu(name: str) -> None:
    model, defence = PAIRS[name]
    ends = []
    for device in ("cpu", "cuda"):
        clients = phones(ragged(), consent=0.5)
        made = model(clients.log.n_items, dim=16, user="exposed")
        fed = Federation.of(clients, made, FedAvg(), defence, Plan(rounds=2, lr=0.5), device=device)
        state = fed.run(fed.start())
        everyone = torch.arange(len(clients), device=device)
        ends.append({**state.server, **fed.fleet.devices.get(everyone)})
        assert fed.evaluate(state, "test").means()["hr@10"] >= 0
    for weight, value in ends[0].items():
        assert torch.allclose(value, ends[1][weight].cpu(), rtol=0, atol=1e-4), weight
