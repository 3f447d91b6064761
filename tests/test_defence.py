"""The nine places where a defence may act: each is reached, and does exactly what one computes by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from tests.worlds import (
    checkerboard,
    digest,
    everyone,
    federation,
    held,
    largest,
    phones,
    run,
    silos,
    uploads_of,
)
from veilrec.clients import Clients
from veilrec.defence import HOOKS, Defence, HelperSteps, chain
from veilrec.defences.none import Undefended
from veilrec.keys import Keys
from veilrec.model import Device, Recommender, with_part
from veilrec.models.fedmf import FedMF
from veilrec.params import Message, Params, Part, Rows, Scope, map_values
from veilrec.protocol import State
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation
from veilrec.wire import one

LR = 0.5


def fed_of(
    defence: Defence | None = None,
    clients: Clients | None = None,
    protocol: FedAvg | None = None,
    **plan: Any,
) -> Federation:
    """One local step a round for everyone, unless told otherwise: the checkerboard has ten events a user."""
    clients = clients or phones(checkerboard())
    settings = {"lr": LR, "batch": 100, "chunk": 7, **plan}
    return federation(clients, FedMF(24, clients.n_seats, dim=4), protocol, defence, **settings)


# prepare


@dataclass(frozen=True)
class Forget(Defence):
    """Devices lose the events of the items at and above a number."""

    below: int = 12

    def prepare(self, clients: Clients, keys: Keys) -> Clients:
        return replace(clients, log=clients.log.take(clients.log.item < self.below))


@dataclass(frozen=True)
class Scramble(Defence):
    """Devices believe in an attribute drawn from their keys."""

    def prepare(self, clients: Clients, keys: Keys) -> Clients:
        drawn = keys.fold(clients.tags).integers(1000)
        return replace(clients, log=replace(clients.log, attributes={"gender": drawn}))


def test_prepare_changes_what_devices_hold() -> None:
    fed = fed_of(Forget())
    counts = torch.bincount(fed.clients.log.user, minlength=24)
    assert fed.clients.sizes == counts.tolist()
    assert int(fed.clients.log.item.max()) < 12
    _, seen = uploads_of(fed)
    assert all(int(e.received.examples[k]) == counts[client] for client, (e, k) in seen.items())
    assert phones(checkerboard()).sizes == [10] * 24


def test_prepare_draws_from_the_seed() -> None:
    first, again, other = (
        federation(phones(checkerboard()), FedMF(24), None, Scramble(), seed=s).clients.log.attributes[
            "gender"
        ]
        for s in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


# attach and penalty


@dataclass(frozen=True)
class Attached(Defence):
    """A vector of a given scope, drawn by a penalty towards 3 for odd people and 1 for even ones."""

    scope: Scope = Scope.SHARED
    name: str = "extra"

    def attach(self, model: Recommender) -> Recommender:
        return with_part(model, self.name, nn.Parameter(torch.zeros(2)), Part(self.scope))

    def penalty(self, model: Recommender, device: Device) -> Tensor:
        goal = 1.0 + 2 * device.batch.attributes["gender"][0]
        return 0.5 * (getattr(model, self.name) - goal).square().sum()


def goals(protocol_lr: float = LR) -> Tensor:
    """``[24, 2]`` where one step from zero leads."""
    return protocol_lr * (1.0 + 2 * (torch.arange(24) % 2))[:, None].expand(24, 2)


@pytest.mark.parametrize("scope", Scope)
def test_attached_parts_are_stored_sent_and_averaged_by_their_scope(scope: Scope) -> None:
    fed = fed_of(Attached(scope))
    state, seen = uploads_of(fed)
    uploaded = {client: one(e.received.values, k) for client, (e, k) in seen.items()}
    assert ("extra" in state.server) == (scope is Scope.SHARED)
    assert ("extra" in held(fed, state)) == (scope is not Scope.SHARED)
    assert all(("extra" in upload) == (scope is not Scope.PRIVATE) for upload in uploaded.values())
    if scope is Scope.SHARED:
        assert largest(state.server["extra"], goals().mean(0)) < 1e-6
    else:
        assert largest(held(fed, state)["extra"], goals()) < 1e-6
    if scope is not Scope.PRIVATE:
        assert all(
            largest(torch.as_tensor(upload["extra"]), goals()[k]) < 1e-6 for k, upload in uploaded.items()
        )


def test_attaching_leaves_the_original_model_alone() -> None:
    model = FedMF(24)
    wider = Attached().attach(model)
    assert set(wider.parts) - set(model.parts) == {"extra"}
    assert not hasattr(model, "extra")


@pytest.mark.parametrize(
    "protocol", [FedAvg(), FedAvg(sends="gradients", server="sgd", server_lr=LR)], ids=str
)
def test_a_shared_part_travels_under_every_way_of_averaging(protocol: FedAvg) -> None:
    state = run(fed_of(Attached(Scope.SHARED), protocol=protocol))
    assert largest(state.server["extra"], goals().mean(0)) < 1e-6


@dataclass(frozen=True)
class Idle(Defence):
    """A shared part that no loss ever reads."""

    def attach(self, model: Recommender) -> Recommender:
        return with_part(model, "idle", nn.Parameter(torch.zeros(2)), Part(Scope.SHARED))


@pytest.mark.parametrize("protocol", [FedAvg(), FedAvg(sends="gradients", server="adam")], ids=str)
def test_a_part_that_nothing_reads_stands_still(protocol: FedAvg) -> None:
    state, plain = run(fed_of(Idle(), protocol=protocol), 2), run(fed_of(protocol=protocol), 2)
    assert not state.server["idle"].any()
    assert torch.equal(state.server["item"], plain.server["item"])


@dataclass(frozen=True)
class Push(Defence):
    """Pushes the user vector along a fixed direction."""

    by: float = 2.0

    def penalty(self, model: Recommender, device: Device) -> Tensor:
        return self.by * model.represent(device.batch).sum()


@pytest.mark.parametrize("epochs", [1, 3])
def test_the_penalty_is_added_to_the_loss(epochs: int) -> None:
    fed, plain = fed_of(Push(), epochs=epochs, lr={"user": LR}), fed_of(epochs=epochs, lr={"user": LR})
    pushed, free = held(fed, run(fed))["user"], held(plain, run(plain))["user"]
    if epochs == 1:
        assert largest(free - pushed, torch.full_like(free, LR * 2.0)) < 1e-6
    else:  # the item rows stand still, but the loss of later steps sees the moved user
        assert bool((free - pushed > LR * 2.0 * (epochs - 1)).all())
    rows = [next(iter(f.rounds(f.start(), until=9)))[1]["loss"] for f in (fed, plain)]
    assert rows[0] != rows[1]  # what is reported is what was minimised


# helpers


@dataclass(frozen=True)
class Helped(Defence):
    """A private probe that a helper loss draws towards (3, 4) plus the person's gender; nothing else may move."""

    helpers: ClassVar[HelperSteps] = HelperSteps(lr=0.1)
    scope: Scope = Scope.PRIVATE

    def attach(self, model: Recommender) -> Recommender:
        return with_part(model, "probe", nn.Parameter(torch.zeros(2)), Part(self.scope, helper=True))

    def helper_loss(self, model: Recommender, device: Device) -> Tensor:
        goal = torch.tensor([3.0, 4.0]) + device.batch.attributes["gender"][0]
        touch = 0.0 * model.represent(device.batch).sum()
        return 0.5 * (model.probe - goal).square().sum() + touch

    def penalty(self, model: Recommender, device: Device) -> Tensor:
        return 7.0 * model.probe.sum()  # helpers stand still here


def by_hand(steps: HelperSteps, rounds: int, per_round: int) -> Tensor:
    """``[24, 2]`` the probe after SGD with momentum, clipped, in every n-th round."""
    probes = []
    for gender in (torch.arange(24) % 2).tolist():
        probe, velocity = torch.zeros(2), torch.zeros(2)
        for round in range(rounds):
            for _ in range(per_round if round % steps.every == 0 else 0):
                slope = probe - (torch.tensor([3.0, 4.0]) + gender)
                if steps.clip:
                    slope = slope * min(1.0, steps.clip / float(slope.norm()))
                velocity = steps.momentum * velocity + slope
                probe = probe - steps.lr * velocity
        probes.append(probe)
    return torch.stack(probes)


@pytest.mark.parametrize(
    "steps",
    [
        HelperSteps(lr=0.1),
        HelperSteps(lr=0.05, momentum=0.9),
        HelperSteps(lr=0.1, clip=1.0),
        HelperSteps(lr=0.1, momentum=0.5, clip=2.0, every=2),
    ],
    ids=["plain", "momentum", "clip", "all"],
)
@pytest.mark.parametrize("batch", [100, 4])
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_helpers_follow_their_own_loss_at_their_own_pace(
    steps: HelperSteps, batch: int, optimiser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Helped, "helpers", steps)
    fed, plain = (fed_of(d, batch=batch, optimiser=optimiser, lr=0.05) for d in (Helped(), None))
    state, free = run(fed, 3), run(plain, 3)
    per_round = -(-10 // batch)
    assert largest(held(fed, state)["probe"], by_hand(steps, 3, per_round)) < 1e-5
    assert torch.equal(state.server["item"], free.server["item"])  # nobody else has moved by it
    assert torch.equal(held(fed, state)["user"], held(plain, free)["user"])


@pytest.mark.parametrize("protocol", [FedAvg(), FedAvg(sends="gradients", server="sgd")], ids=str)
def test_private_helpers_never_leave(protocol: FedAvg) -> None:
    state, seen = uploads_of(fed_of(Helped(), protocol=protocol), 2)
    assert all("probe" not in e.received.values for e, _ in seen.values())
    assert "probe" not in state.server


def test_shared_helpers_are_averaged() -> None:
    state = run(fed_of(Helped(scope=Scope.SHARED)))
    assert largest(state.server["probe"], by_hand(HelperSteps(lr=0.1), 1, 1).mean(0)) < 1e-6


def test_exposed_helpers_are_seen() -> None:
    fed = fed_of(Helped(scope=Scope.EXPOSED))
    state, seen = uploads_of(fed)
    for client, (exchange, k) in seen.items():
        assert largest(one(exchange.received.values, k)["probe"], held(fed, state)["probe"][client]) == 0  # type: ignore[arg-type]


# publish


@dataclass(frozen=True)
class Open(Defence):
    """Consenting users post their vector and their class; a penalty reads what was posted."""

    def publish(self, model: Recommender, device: Device) -> Params:
        return {"vector": model.represent(device.batch), "label": device.batch.attributes["gender"]}

    def penalty(self, model: Recommender, device: Device) -> Tensor:
        if "vector" not in device.public:
            return torch.zeros(())
        return len(device.public["vector"]) * model.represent(device.batch).sum()


@pytest.mark.parametrize("n", [0, 5])
def test_only_consenting_users_post(n: int) -> None:
    log = checkerboard()
    clients = silos(log, n, 0.4) if n else phones(log, 0.4)
    fed = fed_of(Open(), clients)
    state = run(fed)
    client, seat = clients.consents["gender"].nonzero(as_tuple=True)
    assert 0 < len(client) < 24
    assert state.posts.owner.tolist() == (client * clients.n_seats + seat).tolist()
    assert torch.equal(state.posts.values["vector"], held(fed, state)["user"][client, seat])
    assert torch.equal(state.posts.values["label"], clients.seats[client, seat] % 2)


def test_nobody_posts_without_consent() -> None:
    state = run(fed_of(Open(), phones(checkerboard(), 0.0)), 2)
    assert len(state.posts.owner) == 0


def test_a_later_post_replaces_the_earlier_one() -> None:
    fed = fed_of(Open(), phones(checkerboard(), 1.0), cohort=0.4)
    latest: dict[int, Tensor] = {}
    state = fed.start()
    for state, _ in fed.rounds(state, until=4):
        for client in fed.sample(state.round - 1).tolist():
            latest[client] = held(fed, state)["user"][client, 0]
        assert state.posts.owner.tolist() == sorted(latest)
        assert torch.equal(state.posts.values["vector"], torch.stack([latest[k] for k in sorted(latest)]))


def test_devices_read_what_was_posted_before_this_round() -> None:
    clients = phones(checkerboard(), 0.4)
    posts = int(clients.consents["gender"].sum())
    fed, plain = fed_of(Open(), clients, lr={"user": LR}), fed_of(None, clients, lr={"user": LR})
    first, free = run(fed), run(plain)
    assert torch.equal(held(fed, first)["user"], held(plain, free)["user"])  # nothing was posted yet
    second, free = run(fed, 2), run(plain, 2)
    moved = held(plain, free)["user"] - held(fed, second)["user"]
    assert largest(moved, torch.full_like(moved, LR * posts)) < 1e-5


# after_epoch


@dataclass(frozen=True)
class Add(Defence):
    """Adds something to the weights after every epoch."""

    by: float = 1.0
    noise: float = 0.0

    def after_epoch(self, params: Params, device: Device) -> Params:
        return {n: w + self.by + self.noise * device.keys.fold(n).normal(*w.shape) for n, w in params.items()}


@pytest.mark.parametrize("epochs", [1, 3])
def test_after_each_epoch_the_weights_change(epochs: int) -> None:
    fed = fed_of(Add(), lr=0.0, epochs=epochs)
    start = fed.start()
    user = held(fed, start)["user"]
    state, seen = uploads_of(fed)
    assert largest(held(fed, state)["user"], user + epochs) < 1e-5
    for exchange, place in seen.values():
        rows = one(exchange.received.values, place)["item"]
        assert isinstance(rows, Rows)
        kept = rows.row >= 0
        assert largest(rows.value[kept], start.server["item"][rows.row[kept]] + epochs) < 1e-5


def test_training_goes_on_from_the_changed_weights() -> None:
    """Two epochs with a change in between, by hand: a big step, zero gradient for what was pushed far away."""
    fed, plain = (fed_of(d, epochs=2, lr={"user": LR}) for d in (Add(by=50.0), None))
    far, near = held(fed, run(fed))["user"], held(plain, run(plain))["user"]
    assert bool(((far - near) > 50).all())
    assert not torch.allclose(far - near, torch.tensor(100.0), atol=1e-3)


def test_noise_after_an_epoch_is_each_clients_own() -> None:
    one_by_one, together = (fed_of(Add(0.0, 1.0), lr=0.0, epochs=2, chunk=chunk) for chunk in (1, 100))
    first, second = (held(f, run(f))["user"] for f in (one_by_one, together))
    assert torch.equal(first, second)
    assert len({round(float(u[0, 0]), 5) for u in first}) == 24
    keys = together.client_keys(everyone(together), 0)
    expected = sum(keys.fold("after").fold(e).fold("user").normal(1, 4) for e in range(2))
    assert largest(first, held(together, together.start())["user"] + expected) < 1e-5


# on_upload


@dataclass(frozen=True)
class Blur(Defence):
    """Normal noise on everything that leaves."""

    scale: float = 1.0

    def on_upload(self, upload: Message, device: Device) -> Message:
        return map_values(upload, lambda n, v: v + self.scale * device.keys.fold(n).normal(*v.shape))


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_noise_on_an_upload_is_what_the_keys_say(chunk: int) -> None:
    fed = federation(
        phones(checkerboard()), FedMF(24, dim=4, user="exposed"), None, Blur(), lr=0.0, chunk=chunk
    )
    start = fed.start()
    own = held(fed, start)["user"]
    state, seen = uploads_of(fed)
    total, count = torch.zeros(24, 4, dtype=torch.float64), 24
    for client, (exchange, place) in seen.items():
        keys = Keys(fed.client_keys(torch.tensor([client]), 0).value[0]).fold("upload")
        upload = one(exchange.received.values, place)
        rows, user = upload["item"], upload["user"]
        assert isinstance(rows, Rows)
        assert isinstance(user, Tensor)
        row = rows.row[rows.row >= 0]
        noise = keys.fold("item").normal(len(row), 4)
        assert largest(rows.value[: len(row)], start.server["item"][row] + noise) < 1e-6
        assert largest(user, own[client] + keys.fold("user").normal(1, 4)) < 1e-6
        total[row] += noise
    assert largest(state.server["item"], start.server["item"] + total / count) < 1e-6
    assert torch.equal(held(fed, state)["user"], own)  # the device keeps what it has


def test_noise_is_fresh_every_round() -> None:
    uploads = [uploads_of(fed_of(Blur(), lr=0.0), rounds)[1] for rounds in (1, 2)]
    first, second = (one(seen[3][0].received.values, seen[3][1])["item"] for seen in uploads)
    assert isinstance(first, Rows)
    assert isinstance(second, Rows)
    assert not torch.allclose(first.value[0], second.value[0], atol=1e-3)


# stop and unlearn


@dataclass(frozen=True)
class StopAfter(Defence):
    rounds: int = 2
    histories: list[list[float]] = field(default_factory=list)

    def stop(self, state: State, history: list[dict[str, float]]) -> bool:
        self.histories.append([row["round"] for row in history])
        return state.round >= self.rounds


def test_stop_ends_training() -> None:
    defence = StopAfter(3)
    fed = fed_of(defence, rounds=10)
    assert [state.round for state, _ in fed.rounds(fed.start())] == [1, 2, 3]
    assert defence.histories == [[1], [1, 2], [1, 2, 3]]


@dataclass(frozen=True)
class Repair(Defence):
    """More rounds in which only the user vectors move, then an item table of zeros."""

    def unlearn(self, state: State, federation: Federation) -> State:
        state = federation.run(state, rounds=2, trains={"user"})
        return replace(state, server={name: weight * 0 for name, weight in state.server.items()})


def test_unlearning_repairs_a_finished_model() -> None:
    fed = fed_of(Repair(), rounds=3)
    state = fed.run(fed.start())
    users = held(fed, state)["user"].clone()
    mended = fed.defence.unlearn(state, fed)
    assert mended.round == 5
    assert not mended.server["item"].any()
    assert not torch.equal(held(fed, mended)["user"], users)


# all nine at once, and chains


@dataclass(frozen=True)
class Everywhere(Defence):
    """Counts its calls and changes nothing."""

    helpers: ClassVar[HelperSteps] = HelperSteps(lr=0.0)
    calls: Counter[str] = field(default_factory=Counter)

    def prepare(self, clients: Clients, keys: Keys) -> Clients:
        self.calls["prepare"] += 1
        return clients

    def attach(self, model: Recommender) -> Recommender:
        self.calls["attach"] += 1
        return with_part(model, "probe", nn.Parameter(torch.zeros(1)), Part(Scope.PRIVATE, helper=True))

    def publish(self, model: Recommender, device: Device) -> Params:
        self.calls["publish"] += 1
        return {"one": torch.ones(len(device.batch.attributes["gender"]))}

    def helper_loss(self, model: Recommender, device: Device) -> Tensor:
        self.calls["helper_loss"] += 1
        return model.probe.sum()

    def penalty(self, model: Recommender, device: Device) -> Tensor:
        self.calls["penalty"] += 1
        return 0.0 * model.represent(device.batch).sum()

    def after_epoch(self, params: Params, device: Device) -> Params:
        self.calls["after_epoch"] += 1
        return params

    def on_upload(self, upload: Message, device: Device) -> Message:
        self.calls["on_upload"] += 1
        return upload

    def stop(self, state: State, history: list[dict[str, float]]) -> bool:
        self.calls["stop"] += 1
        return False

    def unlearn(self, state: State, federation: Federation) -> State:
        self.calls["unlearn"] += 1
        return state


def test_all_nine_hooks_are_reached_as_often_as_they_should_be() -> None:
    defence = Everywhere()
    fed = fed_of(defence, phones(checkerboard(), 0.5), rounds=2, epochs=3, batch=5, chunk=12)
    state = defence.unlearn(fed.run(fed.start()), fed)
    chunks, steps = 2, 2
    assert defence.calls == {
        "prepare": 1,
        "attach": 1,
        "publish": 2 * chunks,
        "helper_loss": 2 * chunks * 3 * steps,
        "penalty": 2 * chunks * 3 * steps,
        "after_epoch": 2 * chunks * 3,
        "on_upload": 2 * chunks,
        "stop": 2,
        "unlearn": 1,
    }
    assert set(defence.calls) == set(HOOKS)
    plain = run(fed_of(None, rounds=2, epochs=3, batch=5, chunk=12), 2)
    assert largest(state.server["item"], plain.server["item"]) == 0


def test_a_defence_says_where_it_acts() -> None:
    assert all(Everywhere().acts(hook) for hook in HOOKS)
    assert not any(Undefended().acts(hook) for hook in HOOKS)
    assert [hook for hook in HOOKS if Blur().acts(hook)] == ["on_upload"]
    assert [hook for hook in HOOKS if chain(Blur(), Push()).acts(hook)] == ["penalty", "on_upload"]


def test_a_chain_of_one_or_of_nothing_is_no_chain() -> None:
    blur = Blur()
    assert chain(blur) is blur
    assert digest(run(fed_of(chain()), 2)) == digest(run(fed_of(), 2))
    assert digest(run(fed_of(chain(Undefended(), Undefended())), 2)) == digest(run(fed_of(), 2))


@dataclass(frozen=True)
class Times(Defence):
    by: float = 3.0

    def on_upload(self, upload: Message, device: Device) -> Message:
        return map_values(upload, lambda n, v: v * self.by)

    def after_epoch(self, params: Params, device: Device) -> Params:
        return {n: w * self.by for n, w in params.items()}


def test_changes_apply_in_order() -> None:
    first, second = (fed_of(chain(*pair), lr=0.0) for pair in ((Add(), Times()), (Times(), Add())))
    user = held(first, first.start())["user"]
    assert largest(held(first, run(first))["user"], (user + 1) * 3) < 1e-5
    assert largest(held(second, run(second))["user"], user * 3 + 1) < 1e-5


def test_penalties_add_up() -> None:
    both, one_alone = (fed_of(d, lr={"user": LR}) for d in (chain(Push(2.0), Push(0.5)), Push(2.5)))
    assert largest(held(both, run(both))["user"], held(one_alone, run(one_alone))["user"]) < 1e-6


def test_chains_reach_every_other_place_too() -> None:
    assert len(fed_of(chain(Forget(12), Forget(6))).clients.log) == len(fed_of(Forget(6)).clients.log)
    two = fed_of(chain(Attached(name="a"), Attached(Scope.PRIVATE, "b")))
    state = run(two)
    assert largest(state.server["a"], goals().mean(0)) < 1e-6
    assert largest(held(two, state)["b"], goals()) < 1e-6
    fed = fed_of(chain(StopAfter(5), StopAfter(2)), rounds=9)
    assert [state.round for state, _ in fed.rounds(fed.start())] == [1, 2]
    posts = run(fed_of(chain(Open(), Everywhere()), phones(checkerboard(), 1.0))).posts
    assert set(posts.values) == {"vector", "label", "one"}
    fed = fed_of(chain(Repair(), Repair()), rounds=1)
    assert fed.defence.unlearn(fed.run(fed.start()), fed).round == 5


def test_two_of_a_kind_draw_different_noise() -> None:
    """Twice the same noise would be one noise of twice the size: a weaker mixture than the chain promises."""
    once, twice = (uploads_of(fed_of(d, lr=0.0))[1] for d in (Blur(), chain(Blur(), Blur())))
    values = []
    for seen in (once, twice):
        rows = one(seen[0][0].received.values, seen[0][1])["item"]
        assert isinstance(rows, Rows)
        values.append(rows.value[rows.row >= 0])
    assert 1.1 < float(values[1].std() / values[0].std()) < 1.8  # the square root of two, not two


@dataclass(frozen=True)
class NoisyPenalty(Defence):
    """A push in a random direction."""

    def penalty(self, model: Recommender, device: Device) -> Tensor:
        user = model.represent(device.batch)
        return (device.keys.fold("push").normal(*user.shape) * user).sum()


def test_two_of_a_kind_push_in_different_directions() -> None:
    alone, plain, both = (
        fed_of(d, lr={"user": LR}) for d in (NoisyPenalty(), None, chain(NoisyPenalty(), NoisyPenalty()))
    )
    single, free, double = (held(f, run(f))["user"] for f in (alone, plain, both))
    assert largest(double - free, 2 * (single - free)) > 0.1


def test_scrambles_in_a_chain_differ() -> None:
    first = federation(phones(checkerboard()), FedMF(24), None, Scramble()).clients.log.attributes["gender"]
    second = federation(phones(checkerboard()), FedMF(24), None, chain(Scramble(), Scramble())).clients.log
    assert not torch.equal(first, second.attributes["gender"])
