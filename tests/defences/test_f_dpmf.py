"""F-DPMF: the shares of the noise add up to Laplace, and gradients hold just these shares."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from scipy.stats import kstest
from torch import Tensor

from tests.noisy import correlation
from tests.worlds import checkerboard, digest, federation, held, largest, log_of, phones, run, uploads_of
from veilrec.base.keys import Keys, normal_of
from veilrec.base.params import Part, Rows, Scope
from veilrec.defences.common.kept_noise import kept_keys
from veilrec.defences.f_dpmf import FDPMF, exponential_of
from veilrec.errors import BadInput
from veilrec.model import bind
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.models.popularity import Popularity
from veilrec.protocols.fedavg import FedAvg
from veilrec.recipe.catalogue import find
from veilrec.rounds import Federation
from veilrec.wire.codec import one

ROWS, WIDTH = 400, 20


def shares(defence: FDPMF, n: int, name: str = "item") -> Tensor:
    """``[n, rows, width]`` of some devices."""
    row = torch.arange(ROWS)
    return torch.stack([defence.share(Keys.seed(9).fold(k), name, row, WIDTH) for k in range(n)])


def faults(defence: FDPMF, n: int) -> list[str]:
    """What is wrong with the noise of `n` devices together and apart."""
    found, each = [], shares(defence, n)
    total = each.sum(0) / defence.scale  # [rows, width]
    if kstest(total.flatten().numpy(), "laplace").pvalue < 1e-4:
        found.append("the sum is not Laplace")
    limit = 4.5 / math.sqrt(total.numel())
    pairs = {"rows": (total[:-1], total[1:]), "columns": (total[:, :-1], total[:, 1:])}
    pairs["devices"] = (each[0], each[1])
    for what, (a, b) in pairs.items():
        sizes = (a.abs(), b.abs()) if what != "devices" else (a, b)  # devices share h, and so their sizes
        if max(abs(correlation(a, b)), abs(correlation(*sizes))) > limit:
            found.append(f"{what} are not independent")
    return found


@pytest.mark.parametrize(("epsilon", "sensitivity"), [(1.0, 1.0), (0.4, 4.0)])
@pytest.mark.parametrize("n", [2, 50])
def test_the_shares_add_up_to_laplace(n: int, epsilon: float, sensitivity: float) -> None:
    defence = FDPMF(epsilon=epsilon, sensitivity=sensitivity, clients=n)
    assert defence.scale == 2 * sensitivity / epsilon
    assert faults(defence, n) == []


def test_one_share_alone_is_whole() -> None:
    noise = shares(FDPMF(epsilon=0.5, clients=1), 1)[0] / 4
    assert kstest(noise.flatten().numpy(), "laplace").pvalue > 1e-4


def test_of_many_shares_each_is_small() -> None:
    each = shares(FDPMF(clients=50), 50) / 2
    assert abs(float(each.square().mean()) * 50 - 2) < 0.1  # the variance of Laplace is 2


@dataclass(frozen=True)
class OwnSpread(FDPMF):
    """Every device draws h for itself: the sum is nearly normal."""

    def share(self, keys: Keys, name: str, row: Tensor, width: int) -> Tensor:
        spread = (2 * exponential_of(keys.fold("h").rows(row, width))).sqrt()
        return self.scale * spread * normal_of(keys.rows(row, width)) / math.sqrt(self.clients)


@dataclass(frozen=True)
class OneSpread(FDPMF):
    """One h for all coordinates of an item."""

    def share(self, keys: Keys, name: str, row: Tensor, width: int) -> Tensor:
        spread = (2 * exponential_of(Keys.seed(0).rows(row, 1))).sqrt()
        return self.scale * spread * normal_of(keys.rows(row, width)) / math.sqrt(self.clients)


@dataclass(frozen=True)
class Undivided(FDPMF):
    """Everybody adds all of it."""

    def share(self, keys: Keys, name: str, row: Tensor, width: int) -> Tensor:
        return super().share(keys, name, row, width) * math.sqrt(self.clients)


@dataclass(frozen=True)
class Shared(FDPMF):
    """Everybody draws the same."""

    def share(self, keys: Keys, name: str, row: Tensor, width: int) -> Tensor:
        return super().share(Keys.seed(0), name, row, width) / math.sqrt(self.clients)


@dataclass(frozen=True)
class Repeated(FDPMF):
    """Every item has the noise of the first one of its ten."""

    def share(self, keys: Keys, name: str, row: Tensor, width: int) -> Tensor:
        return super().share(keys, name, row // 10, width)


@pytest.mark.parametrize("planted", [OwnSpread, OneSpread, Undivided, Shared, Repeated])
def test_planted_faults_in_the_shares_are_found(planted: type[FDPMF]) -> None:
    assert faults(planted(clients=50), 50) != []


def test_exponential_numbers_are() -> None:
    drawn = exponential_of(Keys.seed(1).words(20_000))
    assert kstest(drawn.numpy(), "expon").pvalue > 1e-4
    ends = exponential_of(torch.tensor([0, -1, 1 << 62]))
    assert bool(ends.isfinite().all())
    assert float(ends.min()) > 0


# In a federation.


EVENTS = [(user, (3 * user + k * k) % 12, k) for user in range(4) for k in range(4 + user)]


def fed_of(defence: FDPMF | None, **rest: Any) -> Federation:
    settings = {"precision": "float64", "batch": 3, "negatives": 0, **rest}
    model = settings.pop("model", None) or FedMF(12, dim=3)
    protocol = settings.pop("protocol", FedAvg(sends="gradients", server="sgd"))
    return federation(phones(log_of(*EVENTS, users=4, items=12)), model, protocol, defence, **settings)


def gradients(fed: Federation, name: str = "item") -> dict[int, Tensor]:
    """Each client's upload as a whole table, zero where it sent nothing."""
    found = {}
    for client, (exchange, place) in uploads_of(fed)[1].items():
        rows = one(exchange.received.values, place)[name]
        assert isinstance(rows, Rows)
        table = torch.zeros(12, *rows.value.shape[1:], dtype=torch.float64)
        table[rows.row[rows.row >= 0]] = rows.value[rows.row >= 0]
        found[client] = table
    return found


def noise_of(fed: Federation, client: int, name: str = "item", width: int = 3) -> Tensor:
    """η of one device for the whole table, ``[12, width]``."""
    own = {n: w[client] for n, w in held(fed, fed.start()).items() if n.startswith("f_dpmf")}
    keys = bind(fed.model, {**own}, lambda model: kept_keys(model, "f_dpmf").value)
    assert isinstance(fed.defence, FDPMF)
    return fed.defence.share(Keys(keys), name, torch.arange(12), width)


@pytest.mark.parametrize(
    "plan", [{"batch": 100}, {"batch": 3}, {"batch": 2, "epochs": 3}, {"batch": 1}], ids=str
)
def test_a_gradient_holds_the_share_divided_by_the_examples(plan: dict[str, int]) -> None:
    """Whatever the steps: what leaves is the gradient of the mean loss, and η over the number of events."""
    plain, fed = fed_of(None, **plan), fed_of(FDPMF(clients=4), **plan)
    before, after = gradients(plain), gradients(fed)
    for client in range(4):
        events = plain.clients.sizes[client]
        touched = torch.zeros(12, 1, dtype=torch.float64)
        touched[plain.clients.touched(torch.tensor([client]))[1]] = 1
        assert 0 < int(touched.sum()) == events < 12
        assert largest(after[client] - before[client], touched * noise_of(fed, client) / events) < 1e-12


def test_items_drawn_as_untouched_have_it_as_often_as_they_were_drawn() -> None:
    plain, fed = fed_of(None, negatives=3), fed_of(FDPMF(clients=4), negatives=3)
    before, after = gradients(plain), gradients(fed)
    for client in range(4):
        events = plain.clients.sizes[client]
        times = (after[client] - before[client]) * events / noise_of(fed, client)  # [12, 3]
        assert largest(times, times.round()) < 1e-9
        assert largest(times, times[:, :1].expand(12, 3)) < 1e-9
        assert int(times[:, 0].round().sum()) == 4 * events  # each event names one item and three others


def test_weights_move_by_the_share() -> None:
    plain, fed = (fed_of(d, protocol=FedAvg(), batch=100, lr=0.5) for d in (None, FDPMF(clients=4)))
    before, after = gradients(plain), gradients(fed)
    for client in range(4):
        sent = before[client].abs().sum(1, keepdim=True) > 0
        moved = -0.5 * noise_of(fed, client) / plain.clients.sizes[client] * sent
        assert largest(after[client] - before[client], moved) < 1e-12


def test_every_item_table_is_blurred_by_noise_of_its_own() -> None:
    model = {"kind": "neumf", "dim": 3, "tower_dim": 3, "head": (4,)}
    plain, fed = (fed_of(d, model=FedNCF(12, **model)) for d in (None, FDPMF(clients=4)))  # type: ignore[arg-type]
    names = [n for n in plain.model.names() if plain.model.parts[n.split(".")[0]].rows == "item"]
    assert len(names) == 2
    for name in names:
        change = gradients(fed, name)[3] - gradients(plain, name)[3]
        touched = (change.abs() > 0).any(1, keepdim=True)
        assert largest(change, touched * noise_of(fed, 3, name) / plain.clients.sizes[3]) < 1e-12
    assert largest(noise_of(fed, 3, names[0]), noise_of(fed, 3, names[1])) > 0.1


def test_a_share_is_kept_for_all_rounds() -> None:
    fed = fed_of(FDPMF(clients=4), protocol=FedAvg(), optimiser="adam", lr=0.01)
    before, after = (held(fed, state)["f_dpmf.key"] for state in (fed.start(), run(fed, 3)))
    assert torch.equal(before, after)
    assert len({tuple(row.tolist()) for row in before}) == 4


def test_user_vectors_are_left_alone_in_the_first_step() -> None:
    plain, fed = (fed_of(d, batch=100) for d in (None, FDPMF(clients=4)))
    assert largest(held(plain, run(plain))["user"], held(fed, run(fed))["user"]) == 0


@pytest.mark.parametrize("off", [FDPMF(epsilon=math.inf), FDPMF(sensitivity=0.0, clients=4)], ids=str)
def test_at_no_strength_nothing_changes(off: FDPMF) -> None:
    assert digest(run(fed_of(None), 2)) == digest(run(fed_of(off), 2))


def test_a_wrong_number_of_clients_is_refused() -> None:
    with pytest.raises(BadInput, match="5 shares of the noise, but 4 clients have events; set it to 4"):
        fed_of(FDPMF(clients=5))


def test_a_device_alone_does_not_count_the_others() -> None:
    alone = phones(log_of(*[event for event in EVENTS if event[0] == 0], users=1, items=12))
    assert FDPMF(clients=5).prepare(alone, Keys.seed(0)) is alone


def test_a_model_without_an_item_table_is_refused() -> None:
    model = FedMF(12, dim=3)
    model.parts = {"user": Part(Scope.PRIVATE, rows="user"), "item": Part(Scope.SHARED)}
    with pytest.raises(BadInput, match="no item table"):
        fed_of(FDPMF(), model=model)


def test_tables_of_single_numbers_are_blurred_too() -> None:
    fed = federation(phones(checkerboard()), Popularity(24), None, FDPMF(), lr=0.1)
    assert bool(run(fed, 2).server["item"].isfinite().all())


def test_it_promises_nothing_for_uploads() -> None:
    assert FDPMF().declares(FedMF(24), FedAvg()) == ()
    assert find("defences", "f_dpmf") is FDPMF


@pytest.mark.parametrize("options", [{"epsilon": 0.0}, {"sensitivity": math.inf}, {"clients": 0}])
def test_settings_that_mean_nothing_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=f"defence.{next(iter(options))}"):
        FDPMF(**options)
