"""An experiment from data to result: what is selected, what is tested, what is told."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from tests.forking import small
from tests.worlds import checkerboard, files_of, log_of
from veilrec.base.plan import Plan
from veilrec.datasets.synthetic import synthetic
from veilrec.defence import Defence, HelperSteps, chain
from veilrec.defences.early_stop import EarlyStop
from veilrec.defences.none import Undefended
from veilrec.defences.pard import PARD
from veilrec.defences.uc_fedrec import UCFedRec
from veilrec.engine.evaluation import Evaluation
from veilrec.errors import BadInput, Corrupted
from veilrec.experiment import Experiment
from veilrec.interactions import Interactions
from veilrec.lab.threat import Threat
from veilrec.models.fedmf import FedMF
from veilrec.models.popularity import Popularity
from veilrec.protocol import State
from veilrec.recipe.cells import Cell, run_cells
from veilrec.result import Result
from veilrec.wire.transcript import Record, Transcript

UNSEEN = Evaluation(validation=False)


def metrics(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def mf(data: Interactions | None = None, **plan: Any) -> Experiment:
    """Matrix factorisation that learns the checkerboard."""
    settings = {"rounds": 30, "evaluate_every": 5, "optimiser": "adam", "lr": 0.05, **plan}
    return Experiment(data or checkerboard(), partial(FedMF, dim=8), plan=Plan(**settings))


@dataclass(frozen=True)
class StopAt(Defence):
    """Ends training after a round."""

    last: int = 3

    def stop(self, state: State, history: list[dict[str, float]]) -> bool:
        assert len(history) == state.round
        return state.round >= self.last


def test_one_sentence() -> None:
    result = Experiment(synthetic(users=40, items=30), partial(FedMF, dim=8), plan=Plan(rounds=2)).run()
    assert result.rounds == 2
    assert result.utility.users == 40


def test_a_model_that_learns_is_above_the_floor(tmp_path: Path) -> None:
    result = mf().run(tmp_path / "run")
    utility = result.utility
    assert utility.test["ndcg@10"] > utility.floor["ndcg@10"]
    assert not utility.collapsed
    assert utility.select == "ndcg@10"
    assert "all untouched items" in utility.protocol


def test_a_model_below_the_floor_is_flagged() -> None:
    log = synthetic(users=60, items=60)
    result = Experiment(log, partial(FedMF, dim=4), plan=Plan(rounds=1, lr=0.0)).run()
    assert result.utility.test["ndcg@10"] < result.utility.floor["ndcg@10"]
    assert result.utility.collapsed


@pytest.mark.parametrize("candidates", [0, 10])
def test_the_floor_is_popularity_on_the_same_candidates(candidates: int) -> None:
    judged = Evaluation(candidates=candidates)
    result = Experiment(
        synthetic(users=60, items=60), Popularity, plan=Plan(rounds=1), evaluation=judged
    ).run()
    assert result.utility.test == pytest.approx(dict(result.utility.floor))


def test_the_best_look_is_selected_and_tested(tmp_path: Path) -> None:
    run = mf(lr=0.2)
    result = run.run(tmp_path / "run")
    looks = {row["round"]: row["ndcg@10"] for row in metrics(tmp_path / "run") if "ndcg@10" in row}
    assert list(looks) == [5, 10, 15, 20, 25, 30]
    assert result.selected == max(looks, key=lambda number: (looks[number], -number))
    assert result.selected < 30  # or the test shows nothing
    fed = run.federation()
    for state, _ in fed.rounds(fed.start()):
        if state.round == result.selected:
            assert result.utility.test == fed.evaluate(state, "test").means()
            assert result.utility.validation == fed.evaluate(state, "validation").means()
            break


def test_patience(tmp_path: Path) -> None:
    result = mf(lr=0.2, evaluate_every=1, patience=3).run(tmp_path / "run")
    assert (result.stopped, result.rounds) == ("patience", result.selected + 3)
    assert result.rounds < 30
    assert len(metrics(tmp_path / "run")) == result.rounds


def test_a_defence_may_stop(tmp_path: Path) -> None:
    result = replace(mf(), defence=StopAt(3)).run(tmp_path / "run")
    assert (result.stopped, result.rounds, result.selected) == ("defence", 3, 3)
    assert result.utility.validation.keys() == result.utility.test.keys()  # though nobody had looked yet


class Crash(Exception):
    """Something outside of our hands."""


def crash_at(phase: str) -> Any:
    def tell(told: str, done: int, total: int, row: Mapping[str, float] | None) -> None:
        if told == phase:
            raise Crash

    return tell


@pytest.mark.parametrize("run", [replace(mf(), defence=StopAt(7)), mf(lr=0.2, evaluate_every=1, patience=2)])
def test_a_run_that_had_stopped_does_not_train_on(run: Experiment, tmp_path: Path) -> None:
    run.run(tmp_path / "whole")
    with pytest.raises(Crash):
        run.run(tmp_path / "run", progress=crash_at("test"))
    told: list[str] = []
    run.run(tmp_path / "run", resume=True, progress=lambda phase, *_: told.append(phase))
    assert "clients" not in told
    assert files_of(tmp_path / "run") == files_of(tmp_path / "whole")


def test_a_world_without_validation_items(tmp_path: Path) -> None:
    log = log_of(*((user, (user + k) % 5, k) for user in range(5) for k in range(2)), items=9)
    result = Experiment(log, partial(FedMF, dim=2), plan=Plan(rounds=3)).run(tmp_path / "run")
    assert (result.selected, result.rounds) == (3, 3)
    assert result.utility.validation == {}


def test_without_validation_all_but_the_test_item_is_trained_on(tmp_path: Path) -> None:
    plain, whole = mf(rounds=6), replace(mf(rounds=6), evaluation=UNSEEN)
    one, other = plain.run(tmp_path / "plain"), whole.run(tmp_path / "whole")
    assert (other.selected, other.utility.validation) == (6, {})
    assert (one.data["training"], other.data["training"]) == (240, 264)
    assert (other.data["validation"], other.data["test"]) == (0, 24)
    assert one.utility.protocol != other.utility.protocol  # tables of both do not merge
    assert not any("ndcg@10" in row for row in metrics(tmp_path / "whole"))


def test_resuming_a_finished_run_gives_its_result(tmp_path: Path) -> None:
    result = small(2).run(tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("[!.]*") if path.is_file()}
    assert small(2).run(tmp_path / "run", resume=True) == result
    assert {
        path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("[!.]*") if path.is_file()
    } == before
    with pytest.raises(BadInput, match=r"another recipe or other data: plan\.rounds was 2, is 3"):
        small(3).run(tmp_path / "run", resume=True)
    with pytest.raises(BadInput, match="another recipe or other data: its data, or the kind of device"):
        replace(small(2), data=checkerboard(22)).run(tmp_path / "run", resume=True)


def test_a_finished_run_whose_recipe_was_edited_is_not_resumed(tmp_path: Path) -> None:
    small(2).run(tmp_path)
    with (tmp_path / "recipe.toml").open("a") as file:
        file.write("# edited\n")
    with pytest.raises(Corrupted, match=r"recipe\.toml: not what the run wrote"):
        small(2).run(tmp_path, resume=True)


def test_resuming_an_empty_folder_starts(tmp_path: Path) -> None:
    small(2).run(tmp_path, resume=True)
    small(2).run(tmp_path / "b" / "c")
    assert files_of(tmp_path) == files_of(tmp_path / "b" / "c")


def test_without_a_folder_the_result_is_the_same(tmp_path: Path) -> None:
    there, nowhere = small(4).run(tmp_path / "run"), small(4).run()
    for name in ("utility", "selected", "traffic", "settings", "fingerprint", "data"):
        assert getattr(there, name) == getattr(nowhere, name)


def test_progress_is_told() -> None:
    told: list[tuple[Any, ...]] = []
    small(2).run(progress=lambda *event: told.append(event))
    assert [event[:3] for event in told[:5]] == [
        *(("clients", 3 * k, 12) for k in range(1, 5)),
        ("rounds", 1, 2),
    ]
    assert told[4][3]["round"] == 1
    assert [event[0] for event in told[-2:]] == ["test", "write"]


def test_traffic_of_the_result_is_that_of_the_rows(tmp_path: Path) -> None:
    result = small(4).run(tmp_path / "run")
    for way in ("up", "down"):
        assert result.traffic[way]["total"] == sum(row[f"{way}_bytes"] for row in metrics(tmp_path / "run"))
    assert result.traffic["by_kind"]["up"]["posts"] > 0


def test_the_seed_is_the_run_and_the_split_seed_the_world(tmp_path: Path) -> None:
    first, same, other = (
        replace(small(2), seed=seed).run(tmp_path / name) for seed, name in ((1, "a"), (1, "b"), (2, "c"))
    )
    a, b, c = (files_of(tmp_path / name) for name in "abc")
    assert a == b
    assert a["model.safetensors"] != c["model.safetensors"]
    assert first.utility == same.utility
    assert first.utility.floor == other.utility.floor
    federations = [replace(small(2), seed=seed).federation() for seed in (1, 2)]
    assert federations[0].clients.consents["gender"].equal(federations[1].clients.consents["gender"])
    moved = replace(small(2), split_seed=9).federation()
    assert not moved.clients.consents["gender"].equal(federations[0].clients.consents["gender"])


def test_silos(tmp_path: Path) -> None:
    result = replace(mf(rounds=2), silos=5).run(tmp_path / "run")
    assert result.data["clients"] == 5
    assert result.utility.users == 24


def test_the_summary_of_the_data() -> None:
    summary = mf(rounds=1).run().data
    assert summary["name"] == "checkerboard"
    assert (summary["users"], summary["items"], summary["events"]) == (24, 24, 288)
    assert (summary["training"], summary["validation"], summary["test"]) == (240, 24, 24)
    assert summary["attributes"] == {"gender": {"even": 12, "odd": 12}}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"device": "gpu7"}, "--device"),
        ({"device": "meta"}, "--device"),
        ({"consent": {"gendr": 0.5}}, "data.consent.gendr"),
        ({"defence": PARD()}, "data.consent: nobody posts"),
        ({"defence": PARD(), "consent": {"gender": 0.0}}, "data.consent: nobody posts"),
        ({"defence": PARD(), "consent": 0.001}, "data.consent: nobody posts"),  # of 24
        ({"defence": chain(Undefended(), PARD()), "consent": 0.001}, "data.consent: nobody posts"),
        ({"defence": UCFedRec()}, "data.consent: nobody shares gender, "),
        (
            {"defence": chain(UCFedRec(), Undefended()), "consent": 0.001},
            "data.consent: nobody shares gender",
        ),
        ({"record": Record(("usr",))}, "record.parts"),
        ({"evaluation": Evaluation(candidates=20)}, "evaluation.candidates"),
        ({"silos": 99}, "data.silos"),
        ({"evaluation": UNSEEN, "plan": Plan(patience=2)}, "plan.patience"),
        ({"evaluation": UNSEEN, "defence": EarlyStop(target=0.5)}, "defence.target"),
        ({"evaluation": UNSEEN, "threat": Threat(along="fedau2")}, "threat.along"),
        ({"data": log_of((0, 0, 0), (1, 1, 0), items=3)}, "data: no user has a test item"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(
    tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    with pytest.raises(BadInput) as error:
        replace(mf(), **change).run(tmp_path / "run")
    assert str(error.value).startswith(told)
    assert not (tmp_path / "run").exists()


def two_labels(*, told: bool = True) -> Interactions:
    """The checkerboard with a second attribute, which everybody or nobody has told their device."""
    board = checkerboard()
    label = torch.arange(24) % 2 if told else torch.full((24,), -1)
    classes = {**board.classes, "age": ["young", "old"]}
    return replace(board, attributes={**board.attributes, "age": label}, classes=classes)


@dataclass(frozen=True)
class Asking(Defence):
    """Learns from whoever shares their age, and posts nothing."""

    helpers: ClassVar[HelperSteps] = HelperSteps(taught_by=("age",))


@pytest.mark.parametrize(
    ("defence", "consent", "told"),
    [
        (
            PARD(attributes=["age"]),
            {"gender": 0.4},
            "nobody posts what the defence learns from; give a larger",
        ),
        (PARD(), {"gender": 0.4}, "nobody posts"),
        (UCFedRec(), {"gender": 0.4}, "nobody shares age, "),
        (chain(PARD(attributes=["gender"]), Asking()), {"gender": 0.4}, "nobody shares age, "),
    ],
)
def test_somebody_must_share_what_a_defence_learns(defence: Defence, consent: Any, told: str) -> None:
    """Those who were drawn count, and what they share of what is guarded."""
    run = replace(mf(two_labels()), defence=defence, consent=consent)
    with pytest.raises(BadInput, match=rf"^data\.consent: {told}"):
        run.federation()
    for enough in (0.4, {"gender": 0.4, "age": 0.4}):
        replace(run, consent=enough).federation()
    unknown = replace(run, data=two_labels(told=False), consent=1.0)
    with pytest.raises(BadInput, match=r"^data\.consent: nobody (posts|shares age)"):
        unknown.federation()


@pytest.mark.parametrize("defence", [PARD(attributes=["gender"]), UCFedRec(attributes=("gender",))])
def test_what_a_defence_does_not_guard_nobody_need_share(defence: Defence) -> None:
    made = replace(mf(two_labels()), defence=defence, consent={"gender": 0.4}).federation()
    posting, taught = made.defence.posts(made.model), made.defence.helpers.taught_by
    assert (taught if posting is None else tuple(posting.asks)) == ("gender",)


def test_settings_of_a_chain_are_a_list() -> None:
    told = replace(mf(), defence=chain(StopAt(4), Undefended())).settings()["defence"]
    assert told == [{"name": "StopAt", "last": 4}, {"name": "Undefended"}]


class Kept:
    """A recipe, as the recipe module makes it."""

    def __init__(self, **values: Any) -> None:
        self.values = values

    def toml(self) -> str:
        return "seed = 5  # default\n"


def test_the_recipe_is_stored_as_it_was_written(tmp_path: Path) -> None:
    result = small(1).run(tmp_path / "run", recipe=Kept(seed=5))
    assert (tmp_path / "run" / "recipe.toml").read_text(encoding="utf-8") == "seed = 5  # default\n"
    assert result.settings == {"seed": 5}
    with pytest.raises(BadInput, match="another recipe"):
        small(1).run(tmp_path / "run", recipe=Kept(seed=6), resume=True)


def cells(*seeds: int) -> list[Cell[None]]:
    return [Cell(f"seed={seed}", {"seed": seed}, None) for seed in seeds]


def make(cell: Cell[None]) -> Experiment:
    return replace(small(2), seed=cell.settings["seed"])


def test_cells_are_ordinary_runs(tmp_path: Path) -> None:
    results = run_cells(cells(0, 1), make, tmp_path / "all")
    replace(small(2), seed=1).run(tmp_path / "alone")
    assert files_of(tmp_path / "all" / "seed=1") == files_of(tmp_path / "alone")
    assert Result.load(tmp_path / "all" / "seed=0") == results["seed=0"]
    index = json.loads((tmp_path / "all" / "index.json").read_text(encoding="utf-8"))
    assert index["cells"] == [
        {"name": f"seed={seed}", "settings": {"seed": seed}, "finished": True} for seed in (0, 1)
    ]


def test_cells_are_resumed(tmp_path: Path) -> None:
    whole = run_cells(cells(0, 1, 2), make, tmp_path / "whole")
    told: list[str] = []

    def tell(phase: str, done: int, total: int, row: Mapping[str, float] | None) -> None:
        told.append(phase)
        if len(told) == 14:  # in the second of three
            raise Crash

    with pytest.raises(Crash):
        run_cells(cells(0, 1, 2), make, tmp_path / "all", progress=tell)
    index = json.loads((tmp_path / "all" / "index.json").read_text(encoding="utf-8"))
    assert [cell["finished"] for cell in index["cells"]] == [True, False, False]
    with pytest.raises(BadInput, match="not empty"):
        run_cells(cells(0, 1, 2), make, tmp_path / "all")
    with pytest.raises(BadInput, match="other cells"):
        run_cells(cells(0, 2), make, tmp_path / "all", resume=True)  # seed=1 was begun
    resumed = run_cells(cells(0, 1, 2), make, tmp_path / "all", resume=True)
    assert resumed.keys() == whole.keys()
    for name in whole:
        assert files_of(tmp_path / "all" / name) == files_of(tmp_path / "whole" / name)


@pytest.mark.parametrize("names", [["../x"], ["a/b"], [".."], [""], ["a", "a"], []])
def test_names_that_will_not_do(tmp_path: Path, names: list[str]) -> None:
    with pytest.raises(BadInput, match="cells"):
        run_cells([Cell(name, {}, None) for name in names], make, tmp_path / "all")
    assert not (tmp_path / "all").exists()


def test_no_warning_comes_from_a_run(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small(1).run(tmp_path / "run")
    assert (tmp_path / "run" / "result.json").exists()


@pytest.mark.parametrize("forwards", [3, "all"])
def test_where_sums_leave_nothing_reads_single_uploads(forwards: Any) -> None:
    """They end where single uploads do, say so, and leave nothing to attack."""
    plan = Plan(rounds=2, evaluate_every=1, lr=1.0)
    single = Experiment(checkerboard(), partial(FedMF, dim=4), plan=plan).run()
    summed = Experiment(checkerboard(), partial(FedMF, dim=4), plan=replace(plan, forwards=forwards))
    result = summed.run()
    assert result.utility.test == pytest.approx(single.utility.test, abs=1e-3)
    said = result.discloses[0]["says"]
    assert ("at least 3 clients" if forwards == 3 else "all clients of a round") in said
    assert "sums" not in single.discloses[0]["says"]
    with pytest.raises(BadInput, match=r"^threat: uploads leave as sums"):
        replace(summed, threat=Threat()).run()
    with pytest.raises(BadInput, match=r"^record\.last: uploads leave as sums"):
        replace(summed, record=Record(last=1)).run()


def test_passes_count_everybody_once(tmp_path: Path) -> None:
    """Looks, rounds and what is kept count passes: 24 clients in cohorts of 5 are five rounds a pass."""
    plan = Plan(passes=2, order="deal", cohort=5, evaluate_every=1, lr=0.5)
    experiment = Experiment(checkerboard(), partial(FedMF, dim=4), plan=plan, record=Record(last=1))
    result = experiment.run(tmp_path / "run")
    assert result.rounds == 10
    assert [v is not None for v in result.curves["ndcg@10"]] == [False] * 4 + [True] + [False] * 4 + [
        True
    ]  # a look after each pass
    kept = Transcript.open(tmp_path / "run" / "transcript.safetensors")
    assert kept.rounds == [6, 7, 8, 9, 10]
    assert sorted(torch.cat([kept.cohort(round) for round in kept.rounds]).tolist()) == [*range(24)]
    dealt = [experiment.federation().sample(round).tolist() for round in range(10)]
    assert sorted(client for some in dealt[:5] for client in some) == [*range(24)]
    assert dealt[:5] != dealt[5:]  # anew in each pass
