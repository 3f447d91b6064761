"""FedRAP by hand, beside a loop of one device with whole tables, and what stands for a user in training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.contract import Case, cases
from tests.node.test_device import uploads_agree
from tests.worlds import (
    SHORT,
    Both,
    batch,
    checkerboard,
    contents,
    emptied,
    everyone,
    federation,
    held,
    largest,
    phones,
    ragged,
    run,
    silos,
)
from veilrec.base.keys import Keys
from veilrec.base.params import KEPT, ROW, Params, Rows, Scope
from veilrec.base.plan import Plan
from veilrec.base.rows import filled
from veilrec.clients import Batch, Clients
from veilrec.defence import Defence
from veilrec.defences.uc_fedrec import UCFedRec
from veilrec.engine import serving
from veilrec.engine.devices import private_rows
from veilrec.engine.probe import user_vectors
from veilrec.engine.respond import drawn
from veilrec.errors import BadInput
from veilrec.examples import Examples, Portion
from veilrec.model import Device, Recommender, bind
from veilrec.models.fedrap import FedRAP
from veilrec.privacy.disclosure import disclosures
from veilrec.protocol import State
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation
from veilrec.wire.uploads import Exchange

GRADIENTS = FedAvg(sends="gradients", server="adam", server_lr=0.05)
ITEMS, DIM = 120, 3


def by_hand(**options: Any) -> FedRAP:
    model = FedRAP(3, dim=2, **options)
    model.score.weight.data = torch.tensor([[2.0, -1.0]])
    model.score.bias.data = torch.tensor([0.5])
    model.item.data = torch.tensor([[1.0, 0.0], [0.0, 2.0], [-1.0, 0.0]])
    model.residual.data = torch.tensor([[[0.0, 1.0]], [[0.0, 0.0]], [[0.5, -1.0]]])
    return model


def alone(batch: Batch) -> Device:
    return Device(batch, {}, {}, Keys.seed(0), torch.tensor(0), torch.tensor(0))


def test_a_score_is_an_affine_function_of_the_sum() -> None:
    assert by_hand().scores(batch([], [])).tolist() == [[1.5, -1.5, 0.5]]


def test_a_user_is_the_residual_summed_over_its_width() -> None:
    assert by_hand().represent(batch([], [])).tolist() == [[1.0, 0.0, -0.5]]
    some = batch([], [])._replace(rows=torch.tensor([2, 0, -1]))
    assert by_hand().represent(some).tolist() == [[0.0, 0.0, 1.0]]  # what pads the table is nobody's row
    kept = some._replace(rest=torch.tensor([[0.0, 7.0, 0.0]]))
    assert by_hand().represent(kept).tolist() == [[0.0, 7.0, 1.0]]


def test_the_loss_by_hand() -> None:
    """Item 0 touched at 1.5; item 1 not, at -1.5. |C| is 1/2 and 1, the squares of D - C are 1 and 2."""
    device = alone(batch([0], [[1]]))
    bce = float(F.softplus(torch.tensor(-1.5)))
    assert by_hand().loss(device).item() == pytest.approx(bce + 0.1 * 0.75)
    assert by_hand(variant="original").loss(device).item() == pytest.approx(bce + 0.1 * 0.75 - 0.1 * 1.5)


def test_what_belongs_to_whom() -> None:
    shared, own = FedRAP(9, 2, dim=4), FedRAP(9, 2, dim=4, variant="original")
    assert shared.names(Scope.PRIVATE) == ["residual"]
    assert set(own.names(Scope.PRIVATE)) == {"residual", "score.weight", "score.bias"}
    assert (own.parts["score"].shared_init, own.score.weight.shape, shared.score.weight.shape) == (
        True,
        (2, 4),
        (1, 4),
    )
    assert (shared.apart, own.apart) == (0.0, 0.1)
    assert (shared.dim, FedRAP(9, project=4).dim) == (9, 4)
    assert not shared.initial("residual", Keys.seed(0).fold(torch.arange(3))).any()


@pytest.mark.parametrize("options", [{"dim": 0}, {"scale": 0.0}, {"project": -1}])
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=f"model.{next(iter(options))}"):
        FedRAP(9, **options)


@dataclass
class Loop:
    """One device after the other, with whole tables; a step moves only the rows of its round, unless told."""

    fed: Federation
    variant: str
    everywhere: bool = False

    def __post_init__(self) -> None:
        self.server = {n: w.clone() for n, w in self.fed.start().server.items()}
        self.own: dict[int, Params] = {}
        self.moments: dict[int, Params] = {}
        self.rows: dict[int, set[int]] = {}

    def round(self, number: int) -> None:
        changes = [self.device(k, number) for k in self.fed.sample(number).tolist()]
        for name in self.server:
            self.server[name] = self.server[name] + torch.stack([c[name] for c in changes]).mean(0)

    def device(self, k: int, number: int) -> Params:
        """The change of what is shared; what is its own stays here."""
        fed, plan, alone = self.fed, self.fed.plan, torch.tensor([k])
        begin = {n: w[0] for n, w in fed.fleet.fresh(alone).items() if n.startswith("score")}
        own = self.own.setdefault(k, {"residual": torch.zeros(ITEMS, DIM, dtype=torch.float64), **begin})
        weights = {**self.server, **own}
        # Those of what is shared begin anew.
        moments = {n: v for n, v in self.moments.get(k, {}).items() if n[2:] in own}
        read = Portion.draw(
            fed.clients,
            alone,
            fed.fleet.client_keys(alone, number),
            epochs=plan.epochs,
            negatives=plan.negatives,
        )
        rows = read.known.rows[0]
        self.rows.setdefault(k, set()).update(rows.tolist())
        here = torch.full((ITEMS, 1), self.everywhere).index_fill(0, rows, True)
        for _, item, negative in read.epochs:
            for first in range(0, item.shape[1], plan.batch):
                some = slice(first, first + plan.batch)
                touched, untouched = rows[item[0, some]], rows[negative[0, some]].reshape(-1)
                weights = self.stepped(weights, self.slopes(weights, touched, untouched), moments, here)
        self.own[k], self.moments[k] = {name: weights[name] for name in own}, moments
        return {name: weights[name] - value for name, value in self.server.items()}

    def slopes(self, weights: Params, touched: Tensor, untouched: Tensor) -> Params:
        leaves = {name: value.clone().requires_grad_() for name, value in weights.items()}
        item, residual = leaves["item"], leaves["residual"]
        every = torch.cat([touched, untouched])
        label = torch.cat([torch.ones(len(touched)), torch.zeros(len(untouched))]).double()
        score = (item + residual)[every] @ leaves["score.weight"][0] + leaves["score.bias"][0]
        loss = F.binary_cross_entropy_with_logits(score, label) + 0.1 * item[every].abs().mean()
        if self.variant == "original":
            loss = loss - 0.1 * F.mse_loss(residual[every], item[every])
        return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))

    def stepped(self, weights: Params, slopes: Params, moments: Params, here: Tensor) -> Params:
        plan, after = self.fed.plan, {}
        assert isinstance(plan.lr, float)
        for name, slope in slopes.items():
            there = here if name == "residual" else torch.tensor(True)
            step = slope if plan.optimiser == "sgd" else adam(name, slope, moments, there)
            after[name] = weights[name] - plan.lr * torch.where(there, step, 0.0)
        return after


def adam(name: str, slope: Tensor, moments: Params, there: Tensor) -> Tensor:
    """A step of Adam; the moments of rows that are not there stand still."""
    m, v, t = (moments.get(f"{kind}/{name}", torch.zeros((), dtype=torch.float64)) for kind in "mvt")
    m, v = torch.where(there, 0.9 * m + 0.1 * slope, m), torch.where(there, 0.999 * v + 0.001 * slope**2, v)
    moments |= {f"m/{name}": m, f"v/{name}": v, f"t/{name}": t + 1}
    return m / (1 - 0.9 ** (t + 1)) / ((v / (1 - 0.999 ** (t + 1))).sqrt() + 1e-8)


def fed_of(
    clients: Clients | None = None, protocol: Any = None, defence: Any = None, **plan: Any
) -> Federation:
    options = {n: plan.pop(n) for n in ("variant", "project", "sparsity", "apart", "scale") if n in plan}
    clients = clients or phones(ragged(SHORT, ITEMS))
    kind = plan.pop("kind", FedRAP)
    model = kind(ITEMS, clients.n_seats, dim=DIM, **{"scale": 0.3, **options})
    settings = {"precision": "float64", "lr": 0.1, "batch": 8, "epochs": 2, "chunk": 3, **plan}
    return federation(clients, model, protocol, defence, **settings)


@pytest.mark.parametrize("variant", ["fedau2", "original"])
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_many_devices_at_once_are_one_after_another(optimiser: str, variant: str) -> None:
    """Three rounds of some of the devices, with several steps and passes each."""
    fed = fed_of(optimiser=optimiser, variant=variant, cohort=0.6, lr=0.1 if optimiser == "adam" else 1.0)
    loop = Loop(fed, variant)
    for number in range(3):
        loop.round(number)
    begun = fed.start().server
    state = run(fed, 3)
    for name, value in loop.server.items():
        assert largest(value, begun[name]) > 0.01
        assert largest(state.server[name], value) < 1e-9
    whole = fed.fleet.whole(everyone(fed), fed.model.names(Scope.PRIVATE))
    kept = held(fed, state)
    assert len(loop.own) > 2
    for k, own in loop.own.items():
        assert set(kept[ROW][k][kept[ROW][k] >= 0].tolist()) == loop.rows[k]
        assert own["residual"].abs().max() > 0.01
        assert largest(whole["residual"][k, :, 0], own["residual"]) < 1e-9
        assert all(largest(whole[name][k], own[name]) < 1e-9 for name in own if name != "residual")
        if optimiser == "adam":
            assert kept["t/residual"][k] == loop.moments[k]["t/residual"]
            for moment in ("m/residual", "v/residual"):
                found = filled(
                    torch.zeros(len(fed.clients), ITEMS, *kept[KEPT + moment].shape[2:]),
                    kept[ROW],
                    kept[KEPT + moment],
                )[k, :, 0]
                assert largest(found, loop.moments[k][moment]) < 1e-9


def test_planted_steps_of_rows_outside_the_round_are_noticed() -> None:
    fed = fed_of(optimiser="adam", cohort=0.6)
    loops = Loop(fed, "fedau2"), Loop(fed, "fedau2", everywhere=True)
    for loop in loops:
        for number in range(3):
            loop.round(number)
    far = [largest(loops[0].own[k]["residual"], loops[1].own[k]["residual"]) for k in loops[0].own]
    assert max(far) > 0.1


def told(fed: Federation, rounds: int = 3) -> Params:
    state = run(fed, rounds)
    own = fed.fleet.whole(everyone(fed), fed.model.names(Scope.PRIVATE))
    return {**state.server, **own, "vectors": user_vectors(fed, state), **fed.evaluate(state).values}


@pytest.mark.parametrize(
    ("seated", "protocol"),
    [
        pytest.param(1, FedAvg(), id="1-weights"),
        pytest.param(3, GRADIENTS, id="3-gradients"),
        pytest.param(1, GRADIENTS, id="1-gradients", marks=pytest.mark.slow),
        pytest.param(3, FedAvg(), id="3-weights", marks=pytest.mark.slow),
    ],
)
def test_chunks_and_workers_change_nothing(seated: int, protocol: FedAvg) -> None:
    log = ragged((*SHORT, 4), ITEMS)
    clients = phones(log) if seated == 1 else silos(log, 3)
    plans = [{"chunk": 1}, {"chunk": 100}, {"chunk": 2, "workers": 2}, {"chunk": 2}]
    ends = [told(fed_of(clients, protocol, optimiser="adam", cohort=0.7, **plan)) for plan in plans]
    for end in ends[1:]:
        assert all(largest(ends[0][name], end[name]) < 1e-9 for name in ends[0])
    assert all(torch.equal(ends[2][name], ends[3][name]) for name in ends[2])


class Forgetful(FedRAP):
    """Sums up no absent rows, so that a step may read just its own."""

    summary_of_absent_rows = Recommender.summary_of_absent_rows


def test_steps_that_read_just_their_rows_do_the_same() -> None:
    wide, narrow = (fed_of(optimiser="sgd", kind=kind, variant="original") for kind in (FedRAP, Forgetful))
    assert (wide.fleet.task().narrow(), narrow.fleet.task().narrow()) == (False, True)
    ends = told(wide), told(narrow)
    assert all(largest(ends[0][name], ends[1][name]) < 1e-9 for name in ends[0])


def test_users_of_a_silo_have_residuals_of_their_own() -> None:
    clients = silos(ragged((*SHORT, 4), ITEMS), 3)
    fed = fed_of(clients, optimiser="sgd", epochs=1)
    run(fed)
    own = fed.fleet.whole(everyone(fed), ["residual"])["residual"]
    for k, seats in enumerate(clients.seats.tolist()):
        for seat, user in enumerate(seats):
            touched = own[k, :, seat].any(1)
            mine = clients.log.item[clients.log.user == user] if user >= 0 else torch.zeros(0).long()
            assert bool(touched[mine].all())
            assert int(touched.sum()) <= 5 * len(mine)  # the negatives of this user's events


def test_only_a_few_whole_tables_are_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = fed_of(optimiser="adam")
    state = run(fed, 2)
    seen: list[int] = []
    whole = private_rows.whole

    def watched(model: Recommender, devices: Any, cohort: Tensor, *rest: Any) -> Params:
        seen.append(len(cohort))
        return whole(model, devices, cohort, *rest)

    before = {**fed.evaluate(state).values, "vectors": user_vectors(fed, state)}
    monkeypatch.setattr(private_rows, "whole", watched)
    monkeypatch.setattr(serving, "WIDE", 2 * ITEMS * DIM + 1)
    after = {**fed.evaluate(state).values, "vectors": user_vectors(fed, state)}
    assert max(seen) == 2
    assert all(torch.equal(before[name], after[name]) for name in before)


@dataclass(frozen=True)
class Looking(Defence):
    """Writes down what stands for a user in every step, and adds it to the loss."""

    weight: float = 0.0

    def penalty(self, model: Recommender, device: Device) -> Tensor:
        return self.weight * model.represent(device.batch).square().sum()


def opened(fed: Federation, state: State) -> tuple[Examples, Params]:
    """Some devices of the coming round, before their first step."""
    cohort = fed.fleet.chunks(fed.sample(state.round))[0]
    letter = fed.letter(state, cohort)
    chunk = fed.fleet.chunk(letter, cohort, cohort, fed.keys)
    found = drawn(fed.fleet.task(), chunk)
    return private_rows.load(fed.model, found, chunk.kept, chunk.first)


@pytest.mark.parametrize("project", [0, 7])
def test_a_device_in_training_knows_what_stands_for_its_user(project: int) -> None:
    """With all that it keeps, not just the rows of its round; and gradients reach the rows that are here."""
    fed = fed_of(optimiser="adam", project=project, cohort=0.7)
    state = run(fed, 3)
    (portion, own), vectors = opened(fed, state), user_vectors(fed, state)
    for place, k in enumerate(portion.cohort.tolist()):
        cut: list[Any] = [v[place] if isinstance(v, Tensor) else {} for v in portion.known]
        leaf = own["residual"][place].clone().requires_grad_()
        found = bind(fed.model, {"residual": leaf, **state.server}, lambda m, b: m.represent(b), Batch(*cut))
        assert largest(found[0].detach(), vectors[k]) < 1e-9
        found.square().sum().backward()
        assert leaf.grad is not None
        there = portion.known.rows[place] >= 0
        assert bool(leaf.grad[there].any())
        assert not leaf.grad[~there].any()
    assert portion.known.rest.any()  # some rows stay behind


def test_a_projection_adds_residuals_up_with_signs() -> None:
    plain, folded = fed_of(), fed_of(project=16)
    vectors, narrow = (user_vectors(fed, run(fed, 2)) for fed in (plain, folded))
    signs, again = (FedRAP(ITEMS, seats, dim=2, project=16).signs for seats in (1, 5))
    assert signs is not None
    assert again is not None
    assert torch.equal(signs, again)
    assert set((signs * 4).unique().tolist()) == {-1.0, 1.0}
    assert abs(float(signs.mean())) < 0.03
    assert largest(narrow, vectors @ signs.double()) < 1e-9


def test_a_penalty_moves_the_rows_that_are_here_by_all_that_is_kept() -> None:
    """d/dD of |r|² is twice r: by plain descent a device's rows shrink, whatever else it keeps."""
    plain, pushed = fed_of(optimiser="sgd", epochs=1), fed_of(optimiser="sgd", epochs=1, defence=Looking(0.5))
    lengths = [user_vectors(fed, run(fed, 6)).norm(dim=1).mean() for fed in (plain, pushed)]
    assert lengths[1] < 0.8 * lengths[0]


@pytest.mark.parametrize("project", [pytest.param(0, marks=pytest.mark.slow), 6])
def test_a_defence_in_the_loop_gives_the_same_in_any_chunk(project: int) -> None:
    log = ragged(SHORT, ITEMS)
    ends = []
    for chunk, workers in ((1, 1), (4, 1), (4, 2)):
        fed = fed_of(
            phones(log, 0.5),
            defence=UCFedRec(hidden=(5,), attributes=("gender",)),
            project=project,
            optimiser="adam",
            chunk=chunk,
            workers=workers,
        )
        ends.append(told(fed, 2))
    assert all(largest(ends[0][name], ends[1][name]) < 1e-9 for name in ends[0])
    assert all(torch.equal(ends[1][name], ends[2][name]) for name in ends[1])


OTHERWISE: dict[str, dict[str, Any]] = {
    "APM": {"components": {"score": "mlp2"}},
    "Gaussian": {"parts": ()},
}  # fit for its parts


@pytest.mark.parametrize("case", cases("defences"), ids=str)
def test_defences_work_or_refuse_in_one_line(case: Case) -> None:
    made, model = case.entry(**{**case.options, **OTHERWISE.get(case.name, {})}), FedRAP(24, 1, dim=4)
    settings: Any = {"optimiser": "adam", "batch": 4, "rounds": 3}
    if case.name == "PARD":
        with pytest.raises(BadInput, match=r"^model: it needs a model with one vector for a user[^\n]*$"):
            federation(phones(checkerboard(), 0.5), model, None, made, **settings)
        return
    fed, seen = federation(phones(checkerboard(), 0.5), model, None, made, **settings), list[Exchange]()
    start, state = fed.start(), run(fed, 2, watch=[seen.append])
    assert all(weight.isfinite().all() for weight in state.server.values())
    assert not torch.equal(start.server["item"], state.server["item"])
    for exchange in seen:
        assert "residual" not in exchange.received.values
        assert isinstance(exchange.received.values["item"], Rows)
    assert "residual" not in {each.name for each in disclosures(fed.model, fed.protocol, fed.defence)}


@pytest.mark.parametrize("variant", ["fedau2", "original"])
def test_a_real_device_does_the_same(variant: str, tmp_path: Path) -> None:
    sets = ["model.name='FedRAP'", f"model.variant='{variant}'", "model.dim=4", "plan.optimiser='adam'"]
    sets += ["plan.precision='float64'", "plan.epochs=2", "plan.batch=7", "plan.lr=0.05"]
    uploads_agree(sets, tmp_path, "--seeded")


def test_the_residual_can_learn_a_log_by_heart_and_what_is_shared_cannot() -> None:
    """Nothing carries over from one item to another: held-out items are told apart by no one."""
    fed = federation(
        phones(checkerboard()), FedRAP(24, 1, dim=6), rounds=40, optimiser="adam", lr=0.05, batch=16
    )
    *_, (state, row) = fed.rounds(fed.start())
    assert row["loss"] < 0.05
    assert fed.evaluate(state).means()["hr@5"] < 0.7


def state_bytes(state: Both) -> int:
    return sum(v.numel() * v.element_size() for v in contents(state.devices).values())


def test_what_is_kept_grows_with_what_was_touched() -> None:
    fed = fed_of(optimiser="adam", epochs=1, negatives=1)
    one, many = run(fed, 1), run(fed, 8)
    assert state_bytes(one) < state_bytes(many) < 8 * state_bytes(one)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("project", [0, 6])
def test_a_gpu_does_the_same(project: int) -> None:
    ends = []
    for device in ("cpu", "cuda"):
        clients = phones(ragged(SHORT, ITEMS), 0.5)
        model = FedRAP(ITEMS, dim=DIM, variant="original", project=project, scale=0.3)
        plan = Plan(rounds=3, cohort=0.6, optimiser="adam", lr=0.05, batch=8, chunk=3, precision="float64")
        defence = UCFedRec(hidden=(5,), attributes=("gender",))
        fed = Federation.of(clients, model, FedAvg(), defence, plan, device=device)
        state = fed.run(fed.start())
        held = fed.fleet.devices
        again = emptied(fed)
        again.restore({name: value.cpu() for name, value in contents(held).items()})
        who = torch.arange(len(clients), device=device)
        own = again.get(who)
        assert own[ROW].device.type == device
        assert all(torch.equal(own[name], value) for name, value in held.get(who).items())
        ends.append({**state.server, **own, "vectors": user_vectors(fed, state)} | fed.evaluate(state).values)
    assert all(largest(value, ends[1][name].cpu()) < 1e-9 for name, value in ends[0].items())
