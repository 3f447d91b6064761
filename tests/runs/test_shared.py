"""A run that several ranks share leaves what a run in one process leaves, whatever it was asked to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.ranks.pipes import Pipe, run
from tests.worlds import checkerboard, largest, ragged
from veilrec.base.plan import Plan
from veilrec.base.tensors import read
from veilrec.cli.work import nobody
from veilrec.clients import Events
from veilrec.defences.early_stop import EarlyStop
from veilrec.defences.laplace import Laplace
from veilrec.engine.devices.store import Store
from veilrec.engine.evaluation import Evaluation
from veilrec.erasers.gaussian_posthoc import GaussianPosthoc
from veilrec.erasers.leace import LEACE
from veilrec.errors import BadInput
from veilrec.experiment import Experiment
from veilrec.interactions import Interactions
from veilrec.lab.threat import Threat
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.models.fedrap import FedRAP
from veilrec.result import Result
from veilrec.runs import folder
from veilrec.wire.transcript import Record, Transcript

NCF = partial(FedNCF, dim=4, head=(6,), user="exposed")
THREAT = Threat(attributes=("gender",), known=0.5, resamples=100, permutations=99, along="apm@0.3")
SIZES = (9, 3, 5, 1, 17, 8, 8, 2, 6, 4)


def made(data: Interactions | None = None, model: Any = NCF, **parts: Any) -> Experiment:
    plan = {"rounds": 4, "evaluate_every": 1, "lr": 0.3, "batch": 8, "chunk": 4, **parts.pop("plan", {})}
    evaluation = Evaluation(candidates=5)
    log = checkerboard() if data is None else data
    return Experiment(log, model, plan=Plan(**plan), evaluation=evaluation, **parts)


CASES: dict[str, Callable[[], Experiment]] = {
    "plain": made,
    "attacked along the way": lambda: made(threat=THREAT, record=Record(last=2)),
    "patience": lambda: made(plan={"rounds": 30, "patience": 2, "lr": 3.0}),
    "a budget by row": lambda: made(
        ragged(SIZES, 60), defence=Laplace(), plan={"cohort": 0.6, "rounds": 9, "budget": 30000.0}
    ),
    "a defence that stops": lambda: made(
        defence=EarlyStop(rounds=4, target=0.1, metric="ndcg@10"), plan={"rounds": 9}
    ),
    "erasers": lambda: made(erasers=[GaussianPosthoc({"user": 0.5})]),
    "attributes that are forgotten": lambda: made(erasers=[LEACE(attributes=("gender",))]),
    "own tables": lambda: made(model=partial(FedRAP, dim=4)),
    "files": lambda: made(model=partial(FedRAP, dim=4), plan={"keeps": "disk"}),
    "silos": lambda: made(model=partial(FedMF, dim=4), silos=6, plan={"chunk": 1}),
}
ENDS = {"patience": "patience", "a budget by row": "budget", "a defence that stops": "defence"}
SLOW = ("attacked along the way", "patience", "a defence that stops", "silos", "own tables")
MANY = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in CASES]


def part(make: Callable[[], Experiment]) -> Callable[[int], Experiment]:
    """An experiment of whose data only the leader has any."""
    return lambda rank: make() if rank == 0 else replace(make(), data=nobody())


@pytest.mark.parametrize("name", MANY)
def test_a_shared_run_leaves_what_one_process_leaves(name: str, tmp_path: Path) -> None:
    one = CASES[name]().run(tmp_path / "one", checkpoint_seconds=0)
    both = run(part(CASES[name]), 3, tmp_path / "three", checkpoint_seconds=0)
    assert len(both) == 3
    assert one.stopped == ENDS.get(name, "rounds")
    for found in both:
        for field in ("selected", "rounds", "stopped", "traffic", "ledger", "fingerprint", "utility"):
            assert getattr(found, field) == getattr(one, field), field
        assert verdicts(found.privacy) == verdicts(one.privacy)
    assert kept(tmp_path / "three") == pytest.approx(kept(tmp_path / "one"), abs=1e-6)
    assert rounds(tmp_path / "three") == pytest.approx(rounds(tmp_path / "one"), abs=1e-6)
    assert (tmp_path / "one" / "per_user.csv").read_bytes() == (
        tmp_path / "three" / "per_user.csv"
    ).read_bytes()


def kept(place: Path) -> list[float]:
    """A digest of what the server and every device have: a sum for each weight, by client."""
    server, own = read(place / "model.safetensors"), read(place / "users.safetensors")
    order = own.pop("client").argsort()
    by_client = {name: value[order] for name, value in own.items() if len(value) == len(order)}
    tables = {**server, **by_client}
    return [float((value.double() * ranks(value)).sum()) for _, value in sorted(tables.items())]


def ranks(value: torch.Tensor) -> torch.Tensor:
    """Weights that tell the rows of a table apart."""
    place = torch.arange(1, value.numel() + 1).reshape(value.shape)
    return place.double() / value.numel()


def rounds(place: Path) -> list[float]:
    lines = (place / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [float(value) for line in lines for value in json.loads(line).values()]


def verdicts(privacy: Any) -> Any:
    """What audits say, but for the seconds that they took."""
    if isinstance(privacy, dict):
        return {name: verdicts(value) for name, value in privacy.items() if name != "seconds"}
    return [verdicts(value) for value in privacy] if isinstance(privacy, list) else privacy


class Unplugged(Exception):
    """Somebody pulled the plug."""


@pytest.mark.parametrize("name", [pytest.param("own tables", marks=pytest.mark.slow), "files"])
def test_a_run_goes_on_with_another_number_of_ranks(name: str, tmp_path: Path) -> None:
    """From a checkpoint of one process or of several, in files as in memory."""
    whole = CASES[name]().run(tmp_path / "whole", checkpoint_seconds=0)

    def started(ranks: int, out: Path, **options: Any) -> Result:
        make = part(CASES[name])
        if ranks == 1:
            return make(0).run(out, checkpoint_seconds=0, **options)
        return run(make, ranks, out, checkpoint_seconds=0, **options)[0]

    def unplug(phase: str, done: int, *rest: Any) -> None:
        if (phase, done) == ("rounds", 3):
            raise Unplugged

    for before, after in ((1, 2), (3, 2), (2, 1)):
        out = tmp_path / f"{before}-{after}"
        with pytest.raises(Unplugged):
            started(before, out, progress=unplug)
        assert started(after, out, resume=True).utility == whole.utility
        assert kept(out) == pytest.approx(kept(tmp_path / "whole"), abs=1e-6)


def test_nobody_works_out_what_only_others_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events are laid out, candidates drawn and stores filled for the clients of a rank alone."""
    laid: list[int] = []
    really = Events.of
    monkeypatch.setattr(Events, "of", lambda log, seats: laid.append(len(seats)) or really(log, seats))
    drawn: list[int] = []
    candidates = "veilrec.engine.fleet.candidates"
    from veilrec.engine.evaluation import candidates as draw

    monkeypatch.setattr(candidates, lambda clients, *rest: drawn.append(len(clients)) or draw(clients, *rest))
    held: list[int] = []
    put = Store.put
    monkeypatch.setattr(
        Store, "put", lambda self, cohort, values: held.append(len(self.slot)) or put(self, cohort, values)
    )
    run(part(CASES["a budget by row"]), 2, tmp_path / "run", checkpoint_seconds=0)
    users = len(SIZES)
    assert laid
    assert drawn
    assert held
    assert max(laid) < users
    assert max(drawn) < users
    assert max(held) < users


def test_a_wrong_setting_is_the_leaders_to_tell(tmp_path: Path) -> None:
    """Whoever reads no data has nothing to complain of."""
    bad = part(lambda: replace(made(), evaluation=Evaluation(candidates=23)))
    with pytest.raises(BadInput, match=r"^evaluation\.candidates: 23 asked for, user person 0 has 12 unt"):
        run(bad, 2, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_transcripts_tell_the_same_by_client(tmp_path: Path) -> None:
    make = part(CASES["attacked along the way"])
    make(0).run(tmp_path / "one")
    run(make, 2, tmp_path / "two")
    one, two = (Transcript.open(tmp_path / name / folder.TRANSCRIPT) for name in ("one", "two"))
    assert one.rounds == two.rounds
    for number in one.rounds:
        a, b = one.exchange(number).received, two.exchange(number).received
        order, other = a.cohort.argsort(), b.cohort.argsort()
        assert torch.equal(a.cohort[order], b.cohort[other])
        for name, value in a.values.items():
            assert largest(value[order], b.values[name][other]) < 1e-6


def test_a_pipe_is_a_link() -> None:
    """What tests put in the place of connections has all that a run asks of them."""
    from veilrec.engine.ranks.links import Link

    asked = {"send", "receive", "check", "allow", "begin"}
    assert asked <= set(vars(Pipe)) <= set(vars(Link)) | {"__doc__"}
