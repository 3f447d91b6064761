"""FedVAE against its definition, worked out apart, and that it learns."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.contract import Scene
from tests.worlds import checkerboard, federation, largest, phones, ragged, run
from veilrec.base.keys import Keys
from veilrec.base.params import Params
from veilrec.errors import BadInput
from veilrec.model import bind
from veilrec.models.fedvae import FedVAE
from veilrec.protocols.fedavg import FedAvg


def scene_of(**options: float) -> Scene:
    return Scene.of(FedVAE(24, 1, hidden=5, dim=3, **options), phones(ragged((9, 6, 5, 4), 24)))  # type: ignore[arg-type]


def parts(weights: Params, row: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and log-variance of a row, by hand."""
    hidden = torch.tanh(row @ weights["encoder.weight"] + weights["encoder.bias"])
    both = hidden @ weights["latent.weight"] + weights["latent.bias"]
    return both[:3], both[3:]


def row_of(scene: Scene, client: int) -> Tensor:
    batch = scene.device.batch
    items = batch.rows[client][batch.history[client, 0][batch.history[client, 0] >= 0]]
    row = torch.zeros(24, dtype=torch.float64)
    row[items] = 1
    return row


@pytest.mark.parametrize("per", ["user", "item"])
@pytest.mark.parametrize(("beta", "anneal", "weight"), [(0.0, 0, 0.0), (0.3, 0, 0.3), (0.3, 12, 0.075)])
def test_the_loss_is_multvaes(per: str, beta: float, anneal: int, weight: float) -> None:
    scene = scene_of(dropout=0.0, beta=beta, anneal=anneal, per=per)  # in round 3
    losses = scene.mapped(type(scene.model).loss)
    for client in range(len(losses)):
        own = {name: value[client] for name, value in scene.params.items()}
        row = row_of(scene, client)
        mean, spread = parts(own, row / row.sum().sqrt())
        noise = Keys(scene.device.keys.value[client]).fold("vae").fold("code").normal(1, 3)[0].double()
        code = mean + (spread / 2).exp() * noise
        hidden = torch.tanh(code @ own["decoder.weight"] + own["decoder.bias"])
        log = (hidden @ own["output.weight"] + own["output.bias"]).log_softmax(0)
        gauss = torch.distributions.Normal(mean, (spread / 2).exp())
        divergence = torch.distributions.kl_divergence(gauss, torch.distributions.Normal(0.0, 1.0)).sum()
        wanted = (weight * divergence - log[row > 0].sum()) / (row.sum() if per == "item" else 1)
        assert abs(float(losses[client] - wanted)) < 1e-6


def test_half_of_a_row_is_hidden_in_training_and_nothing_when_it_stands_for_the_user() -> None:
    model = FedVAE(2000, hidden=3, dim=2)
    kept = model._dropped(torch.arange(2000)[None], torch.ones(1, 2000), Keys.seed(3))
    assert torch.equal(kept > 0, Keys.seed(3).uniform(1, 2000) >= 0.5)  # by item, wherever it stands in a log
    assert set(kept.unique().tolist()) == {0.0, 2.0}
    assert abs(float(kept.mean()) - 1) < 0.1
    scene = scene_of(dropout=0.5)
    for client in range(3):
        own = {name: value[client] for name, value in scene.params.items()}
        batch = type(scene.device.batch)(
            *(v[client] if isinstance(v, Tensor) and len(v) else {} for v in scene.device.batch)  # type: ignore[arg-type]
        )
        row = row_of(scene, client)
        found = bind(scene.model, own, type(scene.model).represent, batch)
        assert largest(found[0], parts(own, row / row.sum().sqrt())[0]) < 1e-9


def test_it_learns_whose_kind_a_user_is() -> None:
    protocol = FedAvg(sends="gradients", server="adam", server_lr=0.02)
    model = FedVAE(24, hidden=16, dim=4, dropout=0.2)
    fed = federation(phones(checkerboard()), model, protocol, batch=64, negatives=0)
    before, after = fed.start(), run(fed, 60)
    assert fed.evaluate(after).means()["ndcg@10"] > fed.evaluate(before).means()["ndcg@10"] + 0.2


@pytest.mark.parametrize(("option", "value"), [("dropout", 1.0), ("beta", -1.0), ("dim", 0), ("anneal", -1)])
def test_settings_that_mean_nothing_are_refused(option: str, value: float) -> None:
    with pytest.raises(BadInput, match="model"):
        FedVAE(5, **{option: value})  # type: ignore[arg-type]
