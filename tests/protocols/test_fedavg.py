"""FedAvg's three ways of weighing, on two clients that one can follow by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from veilrec.base.keys import Keys
from veilrec.base.params import Part, Rows, Scope
from veilrec.errors import BadInput
from veilrec.model import Recommender
from veilrec.protocol import Shape, State, ignore
from veilrec.protocols.fedavg import FedAvg
from veilrec.wire.uploads import Fold, Posts, Uploads

SERVER = {"item": torch.tensor([[1.0], [2.0], [3.0], [4.0]]), "head": torch.tensor([10.0])}
VALUES = {  # the first client changes rows 0 and 2 by +2, the second row 2 by -4 (and is padded)
    "item": Rows(torch.tensor([[0, 2], [2, -1]]), torch.tensor([[[3.0], [5.0]], [[-1.0], [77.0]]])),
    "head": torch.tensor([[14.0], [6.0]]),
}
EXAMPLES = {"examples": torch.tensor([3, 1], dtype=torch.int32)}
UPLOADS = Uploads(torch.tensor([4, 7]), {**VALUES, **EXAMPLES})  # type: ignore[dict-item]


class Toy(Recommender):
    """A table and a head."""

    def __init__(self, helper: bool = False) -> None:
        super().__init__()
        self.item, self.head = nn.Parameter(SERVER["item"].clone()), nn.Parameter(SERVER["head"].clone())
        self.parts = {"item": Part(Scope.SHARED, rows="item"), "head": Part(Scope.SHARED, helper=helper)}
        self.dim = 1

    def loss(self, device: Any) -> Tensor:
        raise NotImplementedError

    def scores(self, batch: Any, items: Tensor | None = None) -> Tensor:
        raise NotImplementedError

    def represent(self, batch: Any) -> Tensor:
        raise NotImplementedError


def after(protocol: FedAvg, state: State, uploads: Uploads, helper: bool = False) -> State:
    """The state after a round of these uploads, with a server that has no data."""
    model = Toy(helper)
    server = protocol.make_server(Shape(model, 9))
    letter = server.send(state, uploads.cohort, Keys.seed(0))
    partial = protocol.fold(model, letter, {}, uploads)
    return server.finish(state, Fold(partial, Posts.none(), {}), Keys.seed(0), ignore)


def outcome(protocol: FedAvg, rounds: int = 1) -> dict[str, Tensor]:
    memory = {n: torch.zeros(1, *w.shape) for w_n, w in SERVER.items() for n in (f"m/{w_n}", f"v/{w_n}")}
    memory |= {f"t/{n}": torch.zeros(1) for n in SERVER}
    state = State(0, dict(SERVER), memory)
    for _ in range(rounds):
        state = after(protocol, state, UPLOADS)
    return {name: value.flatten() for name, value in state.server.items()}


@pytest.mark.parametrize(
    ("options", "item", "head"),
    [
        ({}, [1 + 2 / 2, 2, 3 + (2 - 4) / 2, 4], 10),
        ({"weigh": "touched"}, [1 + 2, 2, 3 + (2 - 4) / 2, 4], 10),
        ({"weigh": "examples"}, [1 + 3 * 2 / 4, 2, 3 + (3 * 2 - 4) / 4, 4], 10 + (3 * 4 - 4) / 4),
        ({"server": "sgd", "server_lr": {"item": 0.5}}, [1.5, 2, 2.5, 4], 10),
        ({"weigh": "examples", "server": "sgd", "server_lr": 2.0}, [4, 2, 4, 4], 14),
        ({"server": "adam", "server_lr": 0.1}, [1.1, 2, 2.9, 4], 10),
        ({"sends": "gradients", "server": "sgd", "server_lr": 1.0}, [1 - 3 / 2, 2, 3 - (5 - 1) / 2, 4], 0),
        ({"sends": "gradients", "weigh": "touched", "server": "sgd"}, [1 - 3, 2, 3 - (5 - 1) / 2, 4], 0),
    ],
    ids=str,
)
def test_by_hand(options: dict[str, Any], item: list[float], head: float) -> None:
    found = outcome(FedAvg(**options))
    assert found["item"].tolist() == pytest.approx(item, abs=1e-6)
    assert found["head"].tolist() == pytest.approx([head], abs=1e-6)


@pytest.mark.parametrize("server", ["none", "sgd", "adam"])
def test_a_helper_is_the_mean_over_those_who_moved_it_whatever_the_server_does(server: Any) -> None:
    protocol = FedAvg(server=server, server_lr=0.1)
    memory = {f"{k}/item": torch.zeros(1, 4, 1) for k in "mv"} | {"t/item": torch.zeros(1)}
    memory |= {f"{k}/head": torch.zeros(1, 1) for k in "mv"} | {"t/head": torch.zeros(1)}
    state = State(0, dict(SERVER), memory)
    stays = {**VALUES, "head": torch.tensor([[14.0], [10.0]])}
    done = after(protocol, state, Uploads(UPLOADS.cohort, stays), helper=True)  # type: ignore[arg-type]
    assert done.server["head"].tolist() == [14.0]
    assert done.server["item"].flatten().tolist() != SERVER["item"].flatten().tolist()
    assert state.server["head"].tolist() == [10.0]


@pytest.mark.parametrize(
    ("halves", "item", "head"),
    [
        (0, 1 - 3 * 1.5, 10 - 3 * 10),
        (1, 1 - (1 + 0.5 + 0.25) * 1.5, 10 - (1 + 0.5 + 0.25) * 10),
        ({"item": 2}, 1 - (1 + 0.5**0.5 + 0.5) * 1.5, 10 - 3 * 10),
        ({"default": 1, "item": 0}, 1 - 3 * 1.5, 10 - (1 + 0.5 + 0.25) * 10),
    ],
    ids=str,
)
def test_rates_that_halve(halves: Any, item: float, head: float) -> None:
    """The first item's mean gradient is 3/2, the head's (14 + 6)/2; three rounds."""
    protocol = FedAvg(sends="gradients", server="sgd", server_lr=1.0, server_halves=halves)
    found = outcome(protocol, rounds=3)
    assert found["item"][0].item() == pytest.approx(item, abs=1e-6)
    assert found["head"].tolist() == pytest.approx([head], abs=1e-6)


@pytest.mark.parametrize("halves", [-1, float("nan"), {"item": float("inf")}], ids=str)
def test_rates_that_cannot_halve_are_refused(halves: Any) -> None:
    with pytest.raises(BadInput, match=r"protocol\.server_halves.*: .*; give a number from 0 to "):
        FedAvg(server="sgd", server_halves=halves)
    with pytest.raises(BadInput, match=r"protocol\.server_halves: a server that only averages has no rate"):
        FedAvg(server_halves=10)


def test_gradients_need_a_server_that_steps() -> None:
    with pytest.raises(BadInput, match=r"protocol\.server: gradients need a server that steps"):
        FedAvg(sends="gradients")
