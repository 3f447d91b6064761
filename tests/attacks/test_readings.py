"""What an attacker reads: known uploads give known numbers, and nothing else is read."""

from __future__ import annotations

import pytest
import torch

from tests.worlds import checkerboard, federation, phones, silos
from veilrec.attack import Granted, Seen
from veilrec.attacks.common.readings import covered, parts_of, read, refusal
from veilrec.attacks.common.sketch import Sketch, distortion, whole
from veilrec.base.keys import Keys
from veilrec.base.params import Rows
from veilrec.engine.probe import lists, probe, public, see, user_vectors
from veilrec.errors import BadInput
from veilrec.model import Recommender
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.protocol import State
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation

GRADIENTS = FedAvg(sends="gradients", server="adam", server_lr=0.05)


def trained(
    model: Recommender | None = None, protocol: FedAvg | None = None, rounds: int = 2, **plan: object
) -> tuple[Federation, State]:
    clients = phones(checkerboard())
    fed = federation(
        clients, model or FedMF(24, 1, dim=4), protocol, None, lr=0.5, batch=100, chunk=7, **plan
    )
    return fed, fed.run(fed.start(), rounds=rounds)


def test_every_user_is_seen_once_and_nothing_moves() -> None:
    fed, state = trained(cohort=0.25)
    before = {name: value.clone() for name, value in state.server.items()}
    held = {name: value.clone() for name, value in fed.fleet.devices.values.items()}
    slots = fed.fleet.devices.slot.clone()
    seen = torch.cat([exchange.received.cohort for exchange in probe(fed, state)])
    assert sorted(seen.tolist()) == list(range(24))
    assert all(torch.equal(before[name], state.server[name]) for name in before)
    used = fed.fleet.devices.used
    assert all(torch.equal(held[n][:used], fed.fleet.devices.values[n][:used]) for n in held)
    assert torch.equal(slots, fed.fleet.devices.slot)
    assert bool(covered(see(fed, state)).all())


def test_the_probe_is_the_same_again_and_no_round_of_training() -> None:
    fed, state = trained()
    first, again = (list(probe(fed, state)) for _ in range(2))
    for one, other in zip(first, again, strict=True):
        assert torch.equal(
            _rows(one.received.values["item"]).value, _rows(other.received.values["item"]).value
        )
    drawn = _rows(first[0].received.values["item"]).row
    watched: list[torch.Tensor] = []
    fed.run(state, rounds=1, watch=[lambda e: watched.append(_rows(e.received.values["item"]).row)])
    assert drawn.shape != watched[0].shape or not torch.equal(drawn, watched[0])  # other negatives


def _rows(value: object) -> Rows:
    assert isinstance(value, Rows)
    return value


@pytest.mark.parametrize("sends", ["weights", "gradients"])
def test_updates_are_the_gradient_or_the_change_over_the_rate(sends: str) -> None:
    fed, state = trained(protocol=GRADIENTS if sends == "gradients" else FedAvg())
    found = read(see(fed, state), "updates")
    assert (found.features.shape, found.width, found.loss) == ((24, 96), 96, 0.0)
    for exchange in probe(fed, state):
        rows = _rows(exchange.received.values["item"])
        change = (
            rows.value
            if sends == "gradients"
            else (state.server["item"][rows.row.clamp(min=0)] - rows.value) / 0.5
        )
        for k, user in enumerate(exchange.received.cohort.tolist()):
            there = rows.row[k] >= 0
            expected = torch.zeros(24, 4)
            expected[rows.row[k][there]] = change[k][there]
            assert torch.allclose(found.features[user].reshape(24, 4), expected, atol=1e-6)


def test_under_adam_a_change_is_not_divided() -> None:
    fed, state = trained(optimiser="adam")
    found = read(see(fed, state), "updates").features
    for exchange in probe(fed, state):
        rows = _rows(exchange.received.values["item"])
        user, row = int(exchange.received.cohort[0]), int(rows.row[0, 0])
        change = state.server["item"][row] - rows.value[0, 0]
        assert torch.allclose(found[user].reshape(24, 4)[row], change, atol=1e-6)


def test_parts_are_read_alone_and_an_exposed_one_as_it_is() -> None:
    fed, state = trained(FedNCF(24, 1, dim=4, head=(5, 3), user="exposed"))
    seen = see(fed, state)
    assert parts_of(seen) == ["user", "item", "mlp1", "mlp2", "mlp3"]
    widths = {part: read(seen, "updates", (part,)).width for part in parts_of(seen)}
    assert widths == {"user": 4, "item": 96, "mlp1": 45, "mlp2": 18, "mlp3": 4}
    assert read(seen, "updates").width == sum(widths.values())
    uploaded = torch.zeros(24, 4)
    for exchange in probe(fed, state):
        value = exchange.received.values["user"]
        assert isinstance(value, torch.Tensor)
        uploaded[exchange.received.cohort] = value[:, 0]
    assert torch.equal(read(seen, "updates", ("user",)).features, uploaded)
    assert torch.equal(read(seen, "embeddings").features, uploaded)


def test_parameters_are_the_vector_beside_the_mean_of_the_granted_items() -> None:
    fed, state = trained(protocol=GRADIENTS)
    seen = see(fed, state, ("interactions", "user_vectors"))
    found = read(seen, "parameters").features
    log = fed.clients.log
    for user in range(24):
        mean = state.server["item"][log.item[log.user == user]].mean(0)
        assert torch.allclose(found[user, 4:], mean, atol=1e-6)
    assert torch.equal(found[:, :4], user_vectors(fed, state))
    assert torch.equal(user_vectors(fed, state)[:, None], fed.fleet.devices.get(torch.arange(24))["user"])


def test_parameters_under_weights_take_the_devices_own_rows() -> None:
    fed, state = trained()
    found = read(see(fed, state, ("interactions",)), "parameters").features
    log = fed.clients.log
    for exchange in probe(fed, state):
        rows, user = _rows(exchange.received.values["item"]), int(exchange.received.cohort[0])
        mine = torch.isin(rows.row[0], log.item[log.user == user])
        assert torch.allclose(found[user], rows.value[0][mine].mean(0), atol=1e-6)


def test_what_is_not_granted_is_picked_or_missing() -> None:
    fed, state = trained(protocol=GRADIENTS, rounds=20)
    bare = see(fed, state)
    assert bare.granted.interactions is None
    assert bare.granted.user_vectors is None
    assert read(bare, "parameters").features.shape == (24, 4)  # the items' mean alone
    with pytest.raises(BadInput, match="user_vectors"):
        read(bare, "embeddings")
    with pytest.raises(BadInput, match=r'attack\.reads: no part "usr"'):
        read(bare, "updates", ("usr",))


def test_silos_have_rows_only_for_their_user_vectors() -> None:
    clients = silos(checkerboard(), 3)
    fed = federation(clients, FedMF(24, clients.n_seats, dim=4, user="exposed"), None, None, lr=0.5)
    state = fed.run(fed.start(), rounds=1)
    seen = see(fed, state)
    assert read(seen, "embeddings").features.shape == (24, 4)
    assert bool((read(seen, "embeddings").features.abs().sum(1) > 0).all())
    for name in ("updates", "parameters"):
        with pytest.raises(BadInput, match="silo"):
            read(seen, name)


def test_an_outsider_reads_the_vectors_and_no_uploads() -> None:
    vectors = Keys.seed(0).normal(7, 3)
    seen = Seen.of_vectors(vectors)
    assert torch.equal(read(seen, "embeddings").features, vectors)
    assert covered(seen).tolist() == [True] * 7
    with pytest.raises(BadInput, match="no uploads"):
        read(seen, "updates")


def test_a_wide_reading_is_folded_and_says_what_that_cost() -> None:
    fed, state = trained()
    narrow = read(see(fed, state), "updates", columns=32)
    assert (narrow.features.shape, narrow.width) == ((24, 32), 96)
    assert 0 < narrow.loss < 0.5
    assert "kept within" in narrow.notes()["loss"]
    assert "loss" not in read(see(fed, state), "updates", columns=96).notes()


def test_a_sketch_keeps_distances_as_well_as_its_width_promises() -> None:
    exact = Keys.seed(1).normal(40, 20_000)
    for kept, bound in ((256, 0.1), (2048, 0.035)):
        sketch = Sketch.of("item", (20_000,), kept, torch.device("cpu"))
        assert distortion(exact, sketch.fold(exact)) < bound
    assert distortion(exact, sketch.fold(torch.zeros_like(exact))) == 1.0


def test_rows_and_the_whole_table_fold_alike_and_padding_counts_for_nothing() -> None:
    row = torch.tensor([[0, 3, 7], [2, -1, -1]])
    rows = Rows(row, Keys.seed(2).normal(2, 3, 5))
    table = whole(rows, 9)
    assert table.shape == (2, 45)
    assert torch.equal(table[1].reshape(9, 5)[2], rows.value[1, 0])
    assert int((table[1].reshape(9, 5).abs().sum(1) > 0).sum()) == 1
    sketch = Sketch.of("item", (9, 5), 16, torch.device("cpu"))
    assert torch.allclose(sketch.fold(rows), sketch.fold(table), atol=1e-6)


def test_a_profile_is_what_was_granted_or_what_stands_out() -> None:
    fed, state = trained(protocol=GRADIENTS, rounds=20)
    log = fed.clients.log
    truth = torch.zeros(24, 24)
    truth[log.user, log.item] = 1
    assert torch.equal(read(see(fed, state, ("interactions",)), "profile").features, truth)
    picked = read(see(fed, state), "profile").features
    assert float((picked == truth).float().mean()) > 0.9


def test_lists_are_a_column_for_each_item_that_is_shown() -> None:
    seen = Seen.of_granted(Granted(lists=torch.tensor([[2, 0], [1, -1], [2, 1]])))
    assert read(seen, "lists").features.tolist() == [[1, 0, 1], [0, 1, 0], [0, 1, 1]]
    assert bool(covered(seen).all())
    wide = Seen.of_granted(Granted(lists=Keys.seed(3).integers(5000, 20, 30)))
    told = read(wide, "lists")
    assert told.features.shape == (20, 1024)
    assert 4900 < told.width <= 5000
    assert told.loss > 0


def test_a_federation_shows_lists_of_what_users_have_not_touched() -> None:
    fed, state = trained(rounds=20)
    shown, log = lists(fed, state, 5), fed.clients.log
    held = torch.stack([fed.clients.validation[:, 0], fed.clients.test[:, 0]])
    for user in range(24):
        touched = {*log.item[log.user == user].tolist(), *held[:, user].tolist()}
        assert len({*shown[user].tolist()} - touched) == 5
    whole = lists(fed, state, 30)
    assert bool((whole[:, :12] >= 0).all())  # of 24 items 12 are touched
    assert bool((whole[:, 12:] == -1).all())
    granted = see(fed, state, ("lists",)).granted.lists
    assert granted is not None
    assert torch.equal(granted[:, :5], shown)
    with pytest.raises(BadInput, match='grant "lists"'):
        read(see(fed, state), "lists")


def test_a_difference_is_what_changed_beside_what_is_there_now() -> None:
    now, former = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.0, 1.0], [1.0, 1.0]])
    seen = Seen.of_granted(Granted(user_vectors=now, former_vectors=former))
    assert read(seen, "difference").features.tolist() == [[0, 1, 1, 2], [2, 3, 3, 4]]
    with pytest.raises(BadInput, match="before an erasure"):
        read(Seen.of_vectors(now), "difference")
    with pytest.raises(BadInput, match="the same users"):
        read(Seen.of_granted(Granted(user_vectors=now, former_vectors=former[:1])), "difference")


def test_lists_and_differences_are_refused_before_training_where_they_are_not_there() -> None:
    known = public(trained()[0])
    assert refusal(known, ("lists",), "lists", ()) == ""
    assert "whole" in refusal(known, ("lists",), "lists", ("user",))
    assert 'grant "lists"' in refusal(known, (), "lists", ())
    for grants in ((), ("user_vectors", "former_vectors")):  # no run keeps what was before
        assert "before an erasure" in refusal(known, grants, "difference", ())
