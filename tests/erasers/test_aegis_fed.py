"""AegisFed: what is done between two rounds, by a silo's own statistics or by sums, and runs that use it."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.canary import Canaries
from tests.erasers.worlds import keyed, means, told
from tests.worlds import checkerboard
from veilrec.base.params import Message
from veilrec.base.plan import Plan
from veilrec.cli.show.summaries import print_result
from veilrec.defences.gaussian import Gaussian
from veilrec.eraser import Request
from veilrec.erasers.aegis_cs import AegisCS
from veilrec.erasers.aegis_fed import AegisFed
from veilrec.erasers.common import sums as contract
from veilrec.erasers.common.rounds import Present
from veilrec.errors import BadInput
from veilrec.experiment import Experiment
from veilrec.interactions import Interactions
from veilrec.models.fedmf import FedMF
from veilrec.runs import folder
from veilrec.runs.erasing import applied, user_vectors

MODEL = partial(FedMF, dim=3, objective="bpr")
PLAN = Plan(rounds=2, evaluate_every=1, lr=1.0)
QUICK = {"rounds": 2, "cap": 2}


def present(vectors: Tensor, label: Tensor, silos: int) -> list[Present]:
    dealt = [torch.arange(k, len(label), silos) for k in range(silos)]
    request = Request({"gender": label})
    return [Present(vectors[own], vectors[own], request.of(own)) for own in dealt]


def test_a_silo_by_itself_is_aegis_cs_on_its_own_users() -> None:
    vectors, label = told((60, 90), width=3)
    clients = present(vectors, label, 2)
    after = AegisFed(cap=10).between(clients, keyed()).vectors
    for one, found in zip(clients, after, strict=True):
        alone = AegisCS(cap=10, until=0.0).forget(one.vectors, one.request, keyed())
        assert torch.allclose(found, alone, atol=1e-9)


def test_drift_is_from_before_the_first_round() -> None:
    """Users that are alike by now and far from where they began are drawn back there, and nowhere else."""
    vectors, label = told((60,), width=3)
    label = torch.arange(60) % 2
    alike = torch.cat([vectors[:30], vectors[:30]])[torch.arange(60) % 30 + 30 * label]
    request = Request({"gender": label})
    for statistics, rest in (("silo", 0.8), ("sums", math.exp(-0.2))):
        eraser = AegisFed(gamma=0.0, beta=1.0, lr=0.1, cap=1, statistics=statistics)
        [after] = eraser.between([Present(alike, vectors, request)], keyed()).vectors
        assert torch.allclose(after - vectors, rest * (alike - vectors))


def test_by_sums_all_silos_together_become_alike_and_by_themselves_only_each() -> None:
    vectors, label = told((150, 250), width=3, apart=0.5)
    odd = torch.arange(400) % 2  # the silo
    vectors = 0.2 * (vectors + odd[:, None] * torch.tensor([1.0, 0.0, 0.0]))
    label = torch.where((odd == 1) & (torch.arange(400) % 3 > 0), 1, label)
    left = {}
    for statistics in ("silo", "sums"):
        clients = present(vectors, label, 2)
        eraser = AegisFed(statistics=statistics, cap=100)
        after = eraser.between(clients, keyed()).vectors
        whole = torch.empty_like(vectors)
        whole[::2], whole[1::2] = after
        left[statistics] = float((means(whole, label)[0] - means(whole, label)[1]).norm())
    assert left["sums"] < 0.2 * left["silo"]


def test_only_declared_sums_leave_a_silo_and_their_bytes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, label = told((100, 150), width=4)
    canaries, sent = Canaries(), list[bytes]()
    canaries.numbers("vector", vectors)
    plain = contract.encode

    def watched(message: Message) -> bytes:
        sent.append(plain(message))
        return sent[-1]

    monkeypatch.setattr(contract, "encode", watched)
    clients = present(vectors, label, 5)
    between = AegisFed(statistics="sums").between(clients, keyed())
    assert (len(sent), sum(map(len, sent))) == (5, between.up)
    assert between.down == 5 * 8 * (2 * (4 * 4 + 4) + 1)
    assert canaries.scan({str(k): data for k, data in enumerate(sent)}) == []
    assert AegisFed().between(clients, keyed())[1:] == (0, 0)
    assert len(sent) == 5


def run_of(eraser: AegisFed, data: Interactions | None = None, silos: int = 4) -> Experiment:
    return Experiment(data or checkerboard(40), MODEL, erasers=[eraser], plan=PLAN, silos=silos)


@pytest.mark.parametrize("statistics", ["silo", "sums"])
def test_a_run_says_how_it_ended_and_what_crossed_the_wire(
    tmp_path: Path, statistics: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run_of(AegisFed(statistics=statistics, **QUICK)).run(tmp_path / "run")
    [line] = result.traffic["erasing"]
    assert (line["name"], line["rounds"], line["settled"]) == ("AegisFed", 2, False)
    assert line["change"] > line["until"] == 1e-4
    assert (line["up"] > 0) == (statistics == "sums")
    assert folder.load_run(tmp_path / "run").result.traffic["erasing"] == [line]
    print_result(result, tmp_path)
    assert "AegisFed did not come to rest: after 2 rounds" in " ".join(capsys.readouterr().out.split())
    assert line["down"] > 0
    calm = run_of(AegisFed(statistics=statistics, recommend=0.0, until=1e3, **QUICK)).run()
    [line] = calm.traffic["erasing"]
    assert (line["rounds"], line["settled"]) == (1, True)
    assert (result.selected, result.rounds) == (calm.selected, calm.rounds)


def after_and_before(
    eraser: AegisFed, tmp_path: Path, silos: int = 4
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Vectors of users after an eraser and before, and the items' table."""
    experiment = run_of(eraser, silos=silos)
    federation = experiment.federation()
    state = federation.run(federation.start())
    _, before = user_vectors(federation.fleet, ["user"])
    other = applied(federation, state, eraser, experiment.data, federation.keys, tmp_path / "draws")
    assert other.round == state.round
    users, after = user_vectors(federation.fleet, ["user"])
    assert torch.equal(users.sort().values, torch.arange(40))
    return before, after, state.server["item"], other.server["item"]


def test_users_alone_move_unless_items_do_too(tmp_path: Path) -> None:
    before, after, item, now = after_and_before(AegisFed(**QUICK), tmp_path)
    assert bool((before != after).any(1).all())
    assert torch.equal(item, now)
    *_, item, now = after_and_before(AegisFed(items=True, **QUICK), tmp_path)
    assert not torch.equal(item, now)


def test_rounds_draw_their_own_negatives_and_the_same_ones_again(tmp_path: Path) -> None:
    one, again = (after_and_before(AegisFed(**QUICK), tmp_path)[1] for _ in range(2))
    assert torch.equal(one, again)
    still = after_and_before(AegisFed(recommend=0.0, **QUICK), tmp_path)[1]
    assert not torch.equal(one, still)


def test_a_share_of_the_silos_takes_part(tmp_path: Path) -> None:
    before, after, *_ = after_and_before(AegisFed(rounds=1, cap=2, share=0.5), tmp_path)
    assert int((before != after).any(1).sum()) == 20


@pytest.mark.parametrize("items", [False, True], ids=["users", "items too"])
def test_who_has_no_label_keeps_all_to_the_bit(tmp_path: Path, items: bool) -> None:
    data = checkerboard(40)
    gender = torch.where(torch.arange(40) % 7 == 0, -1, data.attributes["gender"])
    data, plan = replace(data, attributes={"gender": gender}), replace(PLAN, optimiser="adam", lr=0.05)
    eraser = AegisFed(("gender",), items=items, **QUICK)
    federation = Experiment(data, MODEL, erasers=[eraser], plan=plan, silos=3).federation()
    state = federation.run(federation.start())
    fleet = federation.fleet
    seats = fleet.clients.seats
    silent = (seats >= 0) & (data.attributes["gender"][seats.clamp(min=0)] < 0)
    before = {name: value.clone() for name, value in fleet.devices.get(torch.arange(3)).items()}
    applied(federation, state, eraser, data, federation.keys, tmp_path / "draws")
    after = fleet.devices.get(torch.arange(3))
    assert 0 < int(silent.sum()) < 10
    for name in ("user", "m/user", "v/user"):
        assert torch.equal(after[name][silent], before[name][silent])
        assert bool(before[name][silent].any(1).all())
    told = (seats >= 0) & ~silent
    assert bool((after["user"][told] != before["user"][told]).any(1).all())
    assert not after["m/user"][told].any()


def test_what_cannot_work_is_refused_before_any_round() -> None:
    with pytest.raises(BadInput, match=r"set data\.silos"):
        run_of(AegisFed(), silos=0).federation()
    run_of(AegisFed(statistics="sums"), silos=0).federation()
    noisy = Experiment(
        checkerboard(40), MODEL, erasers=[AegisFed(items=True)], plan=PLAN, silos=4, defence=Gaussian()
    )
    with pytest.raises(BadInput, match=r"eraser\.items"):
        noisy.federation()
