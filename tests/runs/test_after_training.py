"""What happens in a run after its last round: unlearning, attacks, and who may read what was recorded."""

from __future__ import annotations

import signal
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.worlds import checkerboard, files_of
from veilrec.attack import Attack, Seen, Task
from veilrec.attacks.attribute import AttributeInference
from veilrec.attacks.idlg import iDLG
from veilrec.base.keys import Keys
from veilrec.base.params import Params
from veilrec.base.plan import Plan
from veilrec.defence import Defence, Posting, chain
from veilrec.defences.laplace import Laplace
from veilrec.eraser import AttributeEraser, VectorEraser
from veilrec.erasers.gaussian_posthoc import GaussianPosthoc
from veilrec.erasers.leace import LEACE
from veilrec.erasers.leace_null import LeaceNull
from veilrec.errors import BadInput, ClientFailed, Interrupted
from veilrec.experiment import Experiment
from veilrec.lab.threat import Threat
from veilrec.model import Device, Recommender
from veilrec.models.fedmf import FedMF
from veilrec.privacy.ledger import Ledger
from veilrec.protocol import State
from veilrec.runs import folder
from veilrec.runs.erasing import applied
from veilrec.runs.recorder import Recorder
from veilrec.wire.codec import Spec
from veilrec.wire.transcript import PROBE, Record, Transcript

MODEL = partial(FedMF, dim=4, user="exposed")


@dataclass(frozen=True)
class Forget(VectorEraser):
    """Makes every item the same."""

    @property
    def changes(self) -> Collection[str]:
        return ("item",)

    def erase(self, name: str, vectors: Tensor, keys: Keys) -> Tensor:
        return vectors * 0


def test_a_run_ends_with_the_erased_state_and_says_which_round_was_selected(tmp_path: Path) -> None:
    plan = Plan(rounds=3, evaluate_every=1, lr=1.0)
    plain = Experiment(checkerboard(), MODEL, plan=plan).run()
    after = Experiment(checkerboard(), MODEL, erasers=[Forget()], plan=plan).run(tmp_path / "run")
    assert (after.selected, after.rounds) == (plain.selected, 3)
    chance = after.utility.test["hr@10"]
    assert chance == pytest.approx(after.utility.validation["hr@10"], abs=0.2)  # scored anew: all items tie
    assert after.utility.test != plain.utility.test
    run = folder.load_run(tmp_path / "run")
    state = run.state(Experiment(run.data, MODEL, plan=plan).federation())
    assert not state.server["item"].any()


def test_erasers_draw_each_its_own_numbers_and_none_of_those_of_training() -> None:
    drawn: list[int] = []

    @dataclass(frozen=True)
    class Watch(Forget):
        def erase(self, name: str, vectors: Tensor, keys: Keys) -> Tensor:
            drawn.append(int(keys.value))
            return vectors

    plan = Plan(rounds=2, evaluate_every=1)
    experiment = Experiment(checkerboard(), MODEL, erasers=[Watch(), Watch()], plan=plan)
    experiment.run()
    keys = experiment.federation().keys
    assert len({*drawn, *(int(keys.fold("finish").fold(round).value) for round in range(3))}) == 5


def test_an_eraser_of_a_part_that_is_not_there_is_refused_before_any_work() -> None:
    with pytest.raises(BadInput, match="item"):
        Experiment(checkerboard(), MODEL, erasers=[GaussianPosthoc({"itm": 1.0})]).federation()


def erased_run(eraser: AttributeEraser, out: Path, seats: int = 0) -> tuple[Params, Tensor, Experiment]:
    """What devices hold after a run with an eraser, and the label of each, as a run directory has them."""
    plan = Plan(rounds=3, evaluate_every=1, lr=0.1, optimiser="adam")
    experiment = Experiment(checkerboard(40), MODEL, erasers=[eraser], plan=plan, silos=seats)
    experiment.run(out)
    run = folder.load_run(out)
    federation = experiment.federation()
    run.state(federation)
    fleet = federation.fleet
    seats_of = fleet.clients.seats
    held = fleet.devices.get(torch.arange(len(seats_of)))
    return held, run.data.attributes["gender"][seats_of], experiment


@pytest.mark.parametrize("silos", [0, 4], ids=["phones", "silos"])
def test_a_run_forgets_an_attribute_and_how_its_vectors_were_stepped(tmp_path: Path, silos: int) -> None:
    held, gender, _ = erased_run(LEACE(("gender",)), tmp_path / "run", silos)
    user = held["user"].double()
    assert torch.allclose(user[gender == 0].mean(0), user[gender == 1].mean(0), atol=1e-6)
    assert not any(held[name].any() for name in ("m/user", "v/user", "t/user"))


def test_what_was_drawn_in_secret_is_gone_with_the_run_and_the_same_after_a_crash(tmp_path: Path) -> None:
    held, _, experiment = erased_run(LeaceNull(), tmp_path / "run")
    assert list((tmp_path / "run").glob("draws*")) == []
    assert bool(held["user"].isfinite().all())
    found = []
    for _ in range(2):  # as if a process had died between
        federation = experiment.federation()
        state = federation.run(federation.start(), rounds=2)
        applied(federation, state, LeaceNull(), experiment.data, federation.keys, tmp_path / "draws")
        found.append(federation.fleet.devices.get(torch.arange(40))["user"])
    assert torch.equal(*found)
    assert stat.S_IMODE((tmp_path / "draws").stat().st_mode) == 0o600


def test_an_eraser_of_an_attribute_that_is_not_there_is_refused_before_any_work() -> None:
    with pytest.raises(BadInput, match="gender"):
        Experiment(checkerboard(), MODEL, erasers=[LEACE(("gendre",))]).federation()
    with pytest.raises(BadInput, match="no attribute"):
        Experiment(replace(checkerboard(), attributes={}), MODEL, erasers=[LEACE()]).federation()


@dataclass(frozen=True)
class Late(Defence):
    """Guards after some rounds, by forgetting everything that was learned."""

    warm_up: int = 4
    says: bool = True  # whether it says from when on

    @property
    def guards_from(self) -> int:
        return self.warm_up if self.says else 0

    def after_epoch(self, params: Params, device: Device) -> Params:
        return {name: weight * (device.round < self.warm_up) for name, weight in params.items()}


@dataclass(frozen=True)
class StopAt(Defence):
    """Wants to end after each round from one on."""

    rounds: int = 2

    def stop(self, state: State, history: list[dict[str, float]]) -> bool:
        return state.round >= self.rounds


WARM = Plan(rounds=7, evaluate_every=1, lr=1.0)


def test_no_state_of_the_warm_up_is_kept(tmp_path: Path) -> None:
    silent, told = (Experiment(checkerboard(), MODEL, defence=Late(says=s), plan=WARM) for s in (False, True))
    assert silent.run().selected <= 4  # the best look lies in the warm-up
    result = told.run(tmp_path / "run")
    assert (result.selected, result.rounds) == (5, 7)
    fed = told.federation()
    folder.load_run(tmp_path / "run").state(fed)
    assert not fed.fleet.devices.get(torch.arange(24))["user"].any()  # it is the guarded one


def test_nothing_ends_training_in_the_warm_up(tmp_path: Path) -> None:
    experiment = Experiment(checkerboard(), MODEL, defence=chain(StopAt(), Late()), plan=WARM)
    result = experiment.run(tmp_path / "whole")
    assert (result.rounds, result.selected, result.stopped) == (5, 5, "defence")

    def interrupt(phase: str, done: int, total: int, row: Mapping[str, float] | None) -> None:
        if (phase, done) == ("rounds", 3):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        experiment.run(tmp_path / "cut", progress=interrupt)
    again = experiment.run(tmp_path / "cut", resume=True)
    assert (again.rounds, again.selected, again.stopped) == (5, 5, "defence")
    assert files_of(tmp_path / "cut") == files_of(tmp_path / "whole")


def test_a_warm_up_as_long_as_the_plan_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    for warm_up in (7, 9):
        experiment = Experiment(checkerboard(), MODEL, defence=Late(warm_up), plan=WARM)
        with pytest.raises(BadInput, match=rf"^defence: of 7 rounds none .* after {warm_up}; "):
            experiment.run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_budget_that_does_not_outlast_the_warm_up_ends_without_a_result(tmp_path: Path) -> None:
    defence = chain(replace(Late(), warm_up=6), Laplace())
    free = Experiment(checkerboard(), MODEL, defence=defence, plan=WARM).federation()
    spent = Ledger.of(free)
    free.run(free.start(), rounds=3, watch=[spent])
    budget = float(max(one.epsilon for one in spent.spent()))
    experiment = Experiment(checkerboard(), MODEL, defence=defence, plan=replace(WARM, budget=budget))
    with pytest.raises(BadInput, match=r"^plan\.budget: it is spent after round 3, and no state"):
        experiment.run(tmp_path / "run")


@dataclass(frozen=True)
class NearestKnown(Attack):
    """The label of the known user whose uploaded vector points most nearly the same way."""

    def infer(self, seen: Seen, task: Task) -> Tensor:
        vector = torch.zeros(len(task.known), 4)
        for exchange in seen.probe():
            value = exchange.received.values["user"]
            assert isinstance(value, Tensor)
            vector[exchange.received.cohort] = value[:, 0]
        told = task.labelled
        alike = torch.nn.functional.normalize(vector) @ torch.nn.functional.normalize(vector[told]).T
        return torch.nn.functional.one_hot(task.known[told[alike.argmax(1)]], task.classes).double()


def test_an_attack_sees_every_user_once_and_stands_beside_the_majority() -> None:
    plan = Plan(rounds=60, evaluate_every=60, lr=3.0)
    threat = Threat(("gender",), 0.25)
    result = Experiment(
        checkerboard(), MODEL, plan=plan, attacks={"nearest": NearestKnown()}, threat=threat
    ).run()
    audit = result.privacy["custom"]
    assert audit["sees"] == "one upload of every user on the state of round 60, after every defence"
    found = audit["attributes"]["gender"]
    assert (found["known"], found["targets"], found["counts"]) == (6, 18, [12, 12])
    assert found["floors"]["majority"]["micro_f1"] == pytest.approx(0.5, abs=0.01)
    nearest = found["attackers"][0]
    assert nearest["scores"]["micro_f1"]["value"] > 0.9  # in this world gender decides what people like
    assert found["verdict"]["attacker"] == "nearest"


def test_an_attack_on_an_attribute_that_is_not_there_is_refused() -> None:
    experiment = Experiment(
        checkerboard(), MODEL, attacks={"nearest": NearestKnown()}, threat=Threat(("shoe size",))
    )
    with pytest.raises(BadInput, match=r"threat\.attributes"):
        experiment.run()


def test_what_is_recorded_is_nobody_elses_to_read(tmp_path: Path) -> None:
    federation = Experiment(checkerboard(), MODEL, plan=Plan(rounds=1)).federation()
    schema = federation.protocol.schema(federation.model)
    notes = Recorder(tmp_path / "transcript", Record(last=1), schema)
    federation.run(federation.start(), watch=[notes])
    notes.finish()
    for path in [tmp_path / "transcript", *(tmp_path / "transcript").glob("r*")]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_of_labels_people_post_only_those_they_share() -> None:
    @dataclass(frozen=True)
    class Tell(Defence):
        def posts(self, model: Recommender, dtype: torch.dtype = torch.float32) -> Posting:
            def make(model: Recommender, device: Device) -> Params:
                return {f"label {name}": label for name, label in device.batch.attributes.items()}

            return Posting(("age",), {f"label {n}": Spec((), torch.int64) for n in ("gender", "age")}, make)

    data = checkerboard()
    other = {"gender": data.attributes["gender"], "age": data.attributes["gender"] * 0 + 2}
    experiment = Experiment(
        replace(data, attributes=other), MODEL, defence=Tell(), consent={"gender": 0.0, "age": 0.6}
    )
    federation = experiment.federation()
    posts = federation.run(federation.start(), rounds=1).posts
    assert 0 < len(posts.owner) < 24
    assert bool((posts.values["label gender"] == -1).all())
    assert bool((posts.values["label age"] == 2).all())


def test_a_post_that_was_not_announced_is_refused() -> None:
    @dataclass(frozen=True)
    class Chatty(Defence):
        def posts(self, model: Recommender, dtype: torch.dtype = torch.float32) -> Posting:
            return Posting(("gender",), {}, lambda model, device: {"everything": device.batch.weight[None]})

    federation = Experiment(checkerboard(), MODEL, defence=Chatty(), consent=1.0).federation()
    with pytest.raises(ClientFailed, match=r"round 1, upload: post: undeclared part 'everything'"):
        federation.run(federation.start(), rounds=1)


def test_too_few_labels_are_refused_before_any_training(tmp_path: Path) -> None:
    data = checkerboard()
    few = replace(data, attributes={"gender": torch.where(torch.arange(24) < 6, torch.arange(24) % 2, -1)})
    with pytest.raises(BadInput, match="cannot be attacked"):
        Experiment(few, MODEL, threat=Threat()).run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_probe_is_kept_with_the_declared_schema_and_counted_nowhere(tmp_path: Path) -> None:
    plan, threat = Plan(rounds=3, cohort=0.5), Threat(("gender",), 0.25)
    parts = {"plan": plan, "attacks": {"nearest": NearestKnown()}, "threat": threat}
    result = Experiment(checkerboard(), MODEL, **parts).run(tmp_path / "attacked")  # type: ignore[arg-type]
    alone = Experiment(checkerboard(), MODEL, plan=plan).run(tmp_path / "alone")
    kept = Transcript.open(tmp_path / "attacked" / folder.TRANSCRIPT)
    assert (kept.rounds, kept.probed) == ([3], True)
    assert sorted(kept.cohort(PROBE).tolist()) == list(range(24))
    assert set(kept.schema) == {"user", "item"}
    assert kept.schema["item"].table == 24
    assert result.traffic == alone.traffic
    alike = [files_of(tmp_path / name)["model.safetensors"] for name in ("attacked", "alone")]
    assert alike[0] == alike[1]


@pytest.mark.parametrize(
    ("parts", "match"),
    [
        ({"attacks": {"a": AttributeInference("embeddings")}}, "no user vector is uploaded"),
        ({"attacks": {"a": AttributeInference("updates", ("mlpp",))}}, 'no part "mlpp" is uploaded'),
        ({"attacks": {"a": AttributeInference("updates")}, "silos": 4}, "of a silo"),
        ({"silos": 4}, "silo|user vector"),
        ({"attacks": {"a": iDLG()}}, "attack a: can say nothing about gender"),
        ({"threat": Threat(known=0.98)}, r"threat\.known"),
    ],
)
def test_what_cannot_look_is_refused_before_any_training(
    tmp_path: Path, parts: dict[str, Any], match: str
) -> None:
    private = partial(FedMF, dim=4)
    experiment = Experiment(checkerboard(), private, **{"threat": Threat(known=0.25), **parts})
    with pytest.raises(BadInput, match=match):
        experiment.run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_silos_are_attacked_by_the_vectors_they_upload() -> None:
    threat = Threat(("gender",), 0.5, resamples=100, permutations=99, folds=2)
    result = Experiment(checkerboard(48), MODEL, plan=Plan(rounds=2), threat=threat, silos=4).run()
    attackers = result.privacy["veilrec"]["attributes"]["gender"]["attackers"]
    assert {attacker["reads"] for attacker in attackers} == {"embeddings"}


def test_without_any_attribute_membership_is_still_measured() -> None:
    bare = replace(checkerboard(), attributes={}, classes={})
    result = Experiment(bare, MODEL, plan=Plan(rounds=2), threat=Threat()).run()
    audit = result.privacy["veilrec"]
    assert audit["attributes"] == {}
    assert audit["membership"]["users"] == 24
