"""``veilrec run``, ``evaluate`` and ``recommend``, from a recipe to a list of titles."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import outside
from tests.cli.commands import Answer, call, tree
from veilrec.cli.finished import reopen
from veilrec.engine.serving import scorer
from veilrec.engine.workers import workers

RECIPE = """
seed = 4

[data]
name = "synthetic"
users = 30
items = 40

[model]
name = "FedMF"
dim = 4

[plan]
rounds = 2
evaluate_every = 1

[evaluation]
candidates = 9
ks = [5, 10]
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VEILREC_HOME", str(tmp_path / "home"))
    (tmp_path / "small.toml").write_text(RECIPE)
    return tmp_path


@pytest.fixture
def made(place: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A finished run."""
    assert call(capsys, "run", "small.toml", "--quiet").code == 0
    return place / "runs" / "small-4"


def stable(result: dict[str, Any]) -> dict[str, Any]:
    """A result without what differs from one machine or hour to the next."""
    return {name: value for name, value in result.items() if name not in {"timing", "environment"}}


def test_a_run_is_told_and_left(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, "run", "small.toml")
    assert answer.code == 0
    for said in (
        "FedMF by FedAvg on synthetic",
        "30 users",
        "hr",
        "popularity @10",
        "leave-one-out",
        "9 untouched",
    ):
        assert said in answer.out
    assert "per device and round" in answer.out
    assert "runs/small-4" in answer.out
    assert "not private" not in answer.out
    assert "rounds 2/2" in answer.err, (
        "progress is on the standard error, in lines where there is no terminal"
    )
    assert "\x1b" not in answer.out + answer.err, "no colours where there is no terminal"
    folder = place / "runs" / "small-4"
    assert {"recipe.toml", "result.json", "metrics.jsonl", "model.safetensors"} <= {
        p.name for p in folder.iterdir()
    }
    stored = tomllib.loads((folder / "recipe.toml").read_text())
    assert stored["plan"]["rounds"] == 2
    assert "# small.toml" in (folder / "recipe.toml").read_text()


def test_noise_from_a_seed_is_told_to_be_none(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, "run", "small.toml", "--set", 'defence=[{name="laplace", epsilon=1.0}]')
    said = " ".join(answer.out.split())
    assert "Privacy ledger: values are differentially private" in said
    assert "the noise of a simulation comes from its seed: not private" in said


def test_json_is_the_result(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, "run", "small.toml", "--json", "--quiet", "--out", "x", "--set", "plan.rounds=1")
    assert answer.err == ""
    said, stored = json.loads(answer.out), json.loads((place / "x" / "result.json").read_text())
    assert stable(said) == stable({name: value for name, value in stored.items() if name != "version"})
    assert said["settings"]["plan"]["rounds"] == 1
    assert said["utility"]["floor"].keys() == said["utility"]["test"].keys()


def test_the_same_recipe_gives_the_same_numbers(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = [
        call(capsys, "run", "small.toml", "--json", "-q", "--out", out, *more)
        for out, more in (("a", []), ("b", ["--set", "plan.workers=1"]), ("c", ["--seed", "5"]))
    ]
    first, second, other = (json.loads(answer.out)["utility"] for answer in answers)
    assert first == second
    assert first["test"] != other["test"]
    assert first["floor"] == other["floor"], "the split and the candidates are the same for all seeds"


def test_the_stored_recipe_runs_again(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    again = json.loads(call(capsys, "run", made / "recipe.toml", "-q", "--json", "--out", "again").out)
    assert again["utility"] == json.loads((made / "result.json").read_text())["utility"]


def test_a_finished_run_is_not_run_again(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree(made)
    assert call(capsys, "run", "small.toml", "-q").code == 2
    answer = call(capsys, "run", "small.toml", "-q", "--resume")
    assert answer.code == 0
    assert "FedMF by FedAvg" in answer.out
    assert tree(made) == before


def test_evaluate_says_what_the_run_said(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree(made)
    utility = json.loads((made / "result.json").read_text())["utility"]
    again = json.loads(call(capsys, "evaluate", made, "--json").out)
    assert {name: again[name] for name in ("test", "floor", "collapsed", "protocol", "users")} == {
        name: utility[name] for name in ("test", "floor", "collapsed", "protocol", "users")
    }
    table = call(capsys, "evaluate", made).out
    assert f"{utility['test']['ndcg@10']:.4f}" in table
    assert tree(made) == before, "looking changes nothing"


def test_a_personal_model_is_tested_judged_and_asked_alike(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its devices train once more before they score, wherever they are asked."""
    sets = ["--set", "model.name=PFedRec", "--set", "plan.lr=2.0", "--set", "evaluation.candidates=0"]
    assert call(capsys, "run", "small.toml", "-q", *sets, "--out", "own").code == 0
    utility = json.loads((place / "own" / "result.json").read_text())["utility"]
    judged = json.loads(call(capsys, "evaluate", "own", "--json").out)
    assert judged["test"] == utility["test"]
    opened = reopen(place / "own")
    user, federation = 6, opened.federation
    with workers(1) as pool:
        tested = scorer(federation.fleet, federation.at(opened.state), pool)(torch.tensor([user]), None)[0, 0]
    own = opened.federation.fleet.devices.get(torch.tensor([user]))
    sent = (own["score.weight"][0] @ opened.state.server["item"].T + own["score.bias"][0])[0]
    name, ids = opened.run.data.user_ids[user], list(opened.run.data.item_ids)
    for entry in listed(call(capsys, "recommend", "own", "--user", name, "--json")):
        item = ids.index(entry["item"])
        assert entry["score"] == pytest.approx(float(tested[item]), rel=1e-6)
        assert abs(entry["score"] - float(sent[item])) > 1e-4


def test_evaluate_by_another_protocol(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = json.loads(call(capsys, "evaluate", made, "--candidates", "0", "--ks", "3,20", "--json").out)
    assert set(other["test"]) == {
        f"{m}@{k}" for m in ("hr", "ndcg", "mrr", "precision", "recall") for k in (3, 20)
    }
    assert "all untouched items" in other["protocol"]
    for arguments in (
        ["--ks", "0"],
        ["--ks", "a"],
        ["--ks", ""],
        ["--candidates", "-1"],
        ["--candidates", "999"],
    ):
        assert call(capsys, "evaluate", made, *arguments).code == 2


def listed(answer: Answer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(answer.out)["items"]
    return found


def test_recommend_shows_what_was_not_touched(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from veilrec.runs.folder import load_run

    log = load_run(made).data
    touched = {log.item_ids[item] for item in log.item[log.user == 6].tolist()}
    everything = listed(call(capsys, "recommend", made, "--user", log.user_ids[6], "-k", "1000", "--json"))
    assert {entry["item"] for entry in everything} == set(log.item_ids) - touched
    assert [entry["score"] for entry in everything] == sorted((e["score"] for e in everything), reverse=True)
    assert all(entry["title"] == log.texts[list(log.item_ids).index(entry["item"])] for entry in everything)  # type: ignore[index]
    three = listed(call(capsys, "recommend", made, "--user", log.user_ids[6], "-k", "3", "--json"))
    assert three == everything[:3]
    table = call(capsys, "recommend", made, "--user", log.user_ids[6], "-k", "3").out
    assert all(entry["title"] in table for entry in three)


def test_recommend_names_the_nearest_users(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, "recommend", made, "--user", "u007")
    assert answer.code == 2
    assert re.search(r'--user: nobody is called "u007"; did you mean u\d{4} or ', answer.err)
    assert "ids are like u0001, u0002, u0003" in call(capsys, "recommend", made, "--user", "Zoë").err


def test_silos(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "run", "small.toml", "-q", "--set", "data.silos=4", "--out", "s").code == 0
    assert len(listed(call(capsys, "recommend", "s", "--user", "u0009", "-k", "4", "--json"))) == 4
    assert call(capsys, "evaluate", "s").code == 0


def test_a_run_without_its_data_finds_it_again(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call(capsys, "run", "small.toml", "-q", "--no-world", "--out", "bare")
    assert not (place / "bare" / "ids.json").exists()
    assert call(capsys, "recommend", "bare", "--user", "u0003").code == 0

    log = "user,item,time\n" + "".join(f"p{u},i{(u + t * t) % 23},{t}\n" for u in range(12) for t in range(8))
    (place / "log.csv").write_text(log)
    told = ["--set", "data={name='csv', path='log.csv'}", "--set", "evaluation.candidates=5"]
    (place / "csv.toml").write_text(RECIPE.replace("users = 30\nitems = 40\n", ""))
    assert call(capsys, "run", "csv.toml", "-q", "--no-world", "--out", "theirs", *told).code == 0
    (place / "log.csv").rename(place / "moved.csv")
    assert call(capsys, "evaluate", "theirs").code == 2
    assert call(capsys, "evaluate", "theirs", "--data", "moved.csv").code == 0
    (place / "moved.csv").write_text(log.replace("i5", "i4"))
    assert "not the data of this run" in call(capsys, "evaluate", "theirs", "--data", "moved.csv").err


def test_a_damaged_run_is_told_by_its_code(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = (made / "model.safetensors").read_bytes()
    (made / "model.safetensors").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    answer = call(capsys, "evaluate", made)
    assert answer.code == 4
    assert answer.err.startswith("veilrec: error: ")
    assert answer.err.count("\n") == 1


def test_a_model_that_did_not_learn_is_flagged(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = ["--set", "plan.lr=0.0", "--set", "plan.rounds=1", "--set", "evaluation.candidates=0"]
    answer = call(capsys, "run", "small.toml", "-q", *told)
    assert "Below the popularity floor by ndcg@10" in answer.out


@pytest.fixture
def with_plugins(place: Path) -> list[str | Path]:
    """A model, a defence, an attack and a dataset from outside, and a recipe that uses them."""
    files = {"m.py": outside.MODEL, "d.py": outside.DEFENCE, "a.py": outside.ATTACK, "w.py": outside.DATASET}
    given: list[str | Path] = []
    for name, source in files.items():
        given += ["--plugin", outside.write(place, name, source)]
    (place / "mine.toml").write_text(
        '[data]\nname = "pairs"\nn = 14\n[model]\nname = "ItemBias"\n'
        '[[defence]]\nname = "Shrink"\nfactor = 0.5\n'
        "[plan]\nrounds = 2\n[evaluation]\ncandidates = 5\nks = [5, 10]\n"
        '[threat]\nattributes = ["gender"]\nknown = 0.5\n[[attack]]\nname = "Shrug"\n'
    )
    return given


def test_plugins_are_listed_and_run(
    place: Path, with_plugins: list[str | Path], capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(call(capsys, "list", "--json", *with_plugins).out)
    for kind, name in (
        ("models", "ItemBias"),
        ("defences", "Shrink"),
        ("attacks", "Shrug"),
        ("datasets", "pairs"),
    ):
        entry = next(entry for entry in found[kind] if entry["name"] == name)
        assert Path(entry["plugin"]).parent == place
    assert "ItemBias" not in call(capsys, "list").out, "a plugin is there for one command"

    assert call(capsys, "run", "mine.toml", "-q").code == 2
    assert call(capsys, "run", "mine.toml", "-q", "--out", "x", *with_plugins).code == 0
    stored = tomllib.loads((place / "x" / "recipe.toml").read_text())
    assert {Path(plugin["path"]).name for plugin in stored["plugin"]} == {"m.py", "d.py", "a.py", "w.py"}
    assert all(len(plugin["sha256"]) == 64 for plugin in stored["plugin"])


def test_a_run_asks_for_its_plugins(
    place: Path, with_plugins: list[str | Path], capsys: pytest.CaptureFixture[str]
) -> None:
    call(capsys, "run", "mine.toml", "-q", "--out", "x", *with_plugins)
    for arguments in (["evaluate", "x"], ["recommend", "x", "--user", "p3"]):
        answer = call(capsys, *arguments)
        assert answer.code == 2
        assert "needs the plugin m.py; add --plugin " in answer.err
        assert call(capsys, *arguments, *with_plugins).code == 0
    (place / "m.py").write_text(outside.MODEL + "# another\n")
    assert "m.py is not the file that was used" in call(capsys, "evaluate", "x", *with_plugins).err


SWEEP = RECIPE.replace("seed = 4", "seeds = [0, 1]") + "\n[sweep]\nmodel.dim = [2, 3]\n"


def test_a_sweep_is_a_folder_of_runs(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "sweep.toml").write_text(SWEEP)
    answer = call(capsys, "run", "sweep.toml")
    assert answer.code == 0, answer.err
    for said in ("model.dim", "popularity", "veilrec compare runs/sweep", "leave-one-out"):
        assert said in answer.out
    assert "4 of 4: model.dim=3,seed=1" in answer.err
    names = [f"model.dim={dim},seed={seed}" for dim in (2, 3) for seed in (0, 1)]
    index = json.loads((place / "runs" / "sweep" / "index.json").read_text())
    assert [cell["name"] for cell in index["cells"]] == names
    for name in names:
        assert call(capsys, "evaluate", place / "runs" / "sweep" / name).code == 0
    alone = ["--set", "model.dim=3", "--seed", "1", "--json", "-q", "--out", "alone"]
    same = json.loads(call(capsys, "run", "small.toml", *alone).out)
    stored = json.loads((place / "runs" / "sweep" / names[3] / "result.json").read_text())
    assert same["utility"] == stored["utility"], "a cell is an ordinary run"


def test_a_sweep_can_be_resumed_and_told_as_json(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "sweep.toml").write_text(SWEEP)
    first = json.loads(call(capsys, "run", "sweep.toml", "-q", "--json").out)
    assert [cell["settings"]["seed"] for cell in first["cells"]] == [0, 1, 0, 1]
    assert call(capsys, "run", "sweep.toml", "-q").code == 2
    again = json.loads(call(capsys, "run", "sweep.toml", "-q", "--json", "--resume").out)
    assert again["cells"] == first["cells"]


def test_numbers_of_two_protocols_do_not_share_a_table(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "sweep.toml").write_text(RECIPE + "\n[sweep]\nevaluation.candidates = [5, 9]\n")
    answer = call(capsys, "run", "sweep.toml", "-q")
    assert answer.out.count("Protocol: ") == 2


@pytest.mark.parametrize("swept", ["evaluation.candidates = [5, 900]", 'data.name = ["synthetic", "ml-1m"]'])
def test_a_sweep_that_must_fail_writes_nothing(
    place: Path, capsys: pytest.CaptureFixture[str], swept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VEILREC_DATA_DIR", raising=False)
    recipe = RECIPE.replace("users = 30\nitems = 40\n", "")
    (place / "sweep.toml").write_text(f"{recipe}\n[sweep]\n{swept}\n")
    before = tree(place)
    answer = call(capsys, "run", "sweep.toml", "-q")
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert tree(place) == before


def test_a_later_cell_is_checked_before_the_first_is_trained(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And told by its name; once it is mended the same folder serves (B1, B2)."""
    sends = '\n[protocol]\nsends = "gradients"\nserver = "sgd"\n'
    sweep = '\n[sweep]\ndefence = [[{name = "none"}], [{name = "apm"}]]\n'
    (place / "s.toml").write_text(RECIPE + sends + sweep)
    answer = call(capsys, "run", "s.toml", "--out", "cmp", "-q")
    assert answer.code == 2
    assert (
        'defence.what: "weights", but devices send gradients (cell defence=apm,seed=4); set it to'
        in answer.err
    )
    assert not (place / "cmp").exists()
    (place / "s.toml").write_text(RECIPE + sends + sweep.replace('"apm"', '"apm", what = "gradients"'))
    assert call(capsys, "run", "s.toml", "--out", "cmp", "-q").code == 0


def test_finished_cells_stay_when_a_sweep_has_others(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def sweep(*rounds: int) -> tuple[int, str]:
        (place / "s.toml").write_text(f"{RECIPE}\n[sweep]\n'plan.rounds' = {list(rounds)}\n")
        answer = call(capsys, "run", "s.toml", "--out", "cmp", "-q", "--resume")
        return answer.code, answer.err

    assert sweep(1, 2)[0] == 0
    before = (place / "cmp" / "plan.rounds=1,seed=4" / "result.json").read_bytes()
    assert sweep(1, 2, 3)[0] == 0
    assert (place / "cmp" / "plan.rounds=1,seed=4" / "result.json").read_bytes() == before
    assert len(json.loads((place / "cmp" / "index.json").read_text())["cells"]) == 3
    code, said = sweep(1, 3)
    assert code == 2
    assert "cmp: holds other cells, such as plan.rounds=2,seed=4; resume with the recipe" in said


def test_a_run_made_in_python_is_a_run_like_any_other(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from functools import partial

    from veilrec.base.plan import Plan
    from veilrec.datasets.synthetic import synthetic
    from veilrec.experiment import Experiment
    from veilrec.models.fedmf import FedMF

    world = synthetic(users=30, items=40)
    result = Experiment(world, partial(FedMF, dim=4), plan=Plan(rounds=2)).run(place / "py")
    again = json.loads(call(capsys, "evaluate", "py", "--json").out)
    assert again["test"] == result.utility.test
    assert call(capsys, "recommend", "py", "--user", "u0001").code == 0
