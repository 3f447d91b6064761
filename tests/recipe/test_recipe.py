"""Recipes: defaults, origins, settings on top, sweeps, and places of errors."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import outside
from veilrec.base.params import Scope
from veilrec.errors import BadInput
from veilrec.models.fedncf import FedNCF
from veilrec.recipe import Recipe, catalogue, plugins

TEXT = """
seed = 3

[data]
name = "synthetic"
users = 40

[model]
name = "fed-ncf"
dim = 8
head = [16]
user = "exposed"

[plan]
rounds = 2
lr = { user = 1, default = 0.1 }
"""


@pytest.fixture(autouse=True)
def _no_plugins() -> Iterator[None]:
    plugins.forget()
    yield
    plugins.forget()


def write(folder: Path, text: str, name: str = "a.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def complaint(folder: Path, text: str, *sets: str, **rest: Any) -> str:
    with pytest.raises(BadInput) as caught:
        Recipe.load(write(folder, text), sets, **rest)
    return str(caught.value).replace(f"{folder}/", "")


def test_every_value_holds_and_has_an_origin(tmp_path: Path) -> None:
    recipe = Recipe.load(write(tmp_path, TEXT), ["plan.batch=64"], seed=5)
    assert recipe.values["model"] | {"tower_dim": 0} == recipe.values["model"]
    assert recipe.values["model"]["name"] == "FedNCF", "names are written as they are listed"
    assert recipe.values["plan"]["lr"] == {"user": 1.0, "default": 0.1}
    assert recipe.values["defence"] == [{"name": "none"}]
    assert recipe.seeds == (5,)
    origins = recipe.origins
    assert origins["seed"] == "command line"
    assert origins["plan.batch"] == "--set"
    assert origins["plan.rounds"] == origins["model.head"] == "a.toml"
    assert origins["plan.epochs"] == origins["defence.0.name"] == "default"


def test_an_empty_recipe_is_one_of_defaults() -> None:
    recipe = Recipe.load()
    assert recipe.values["data"]["name"] == "synthetic"
    assert set(recipe.origins.values()) == {"default"}


def test_what_is_written_is_the_same_recipe(tmp_path: Path) -> None:
    recipe = Recipe.load(write(tmp_path, TEXT), ["evaluation.ks=[5, 10]"])
    again = Recipe.load(write(tmp_path, recipe.toml(), "b.toml"))
    assert again == recipe
    assert tomllib.loads(recipe.toml()) == recipe.values
    assert "rounds = 2" in recipe.toml()
    assert "# a.toml" in recipe.toml()
    assert "ks = [5, 10]" in recipe.toml()


@given(
    rounds=st.integers(1, 10**6),
    cohort=st.floats(1e-6, 1.0),
    lr=st.floats(0, 1e6) | st.dictionaries(st.sampled_from(["user", "item", "default"]), st.floats(0, 1e6)),
    ks=st.lists(st.integers(1, 100), max_size=4).map(lambda ks: [10, *ks]),
    seed=st.integers(0, 2**63 - 1),
)
def test_any_recipe_reads_back(
    tmp_path_factory: pytest.TempPathFactory, rounds: int, cohort: float, lr: Any, ks: list[int], seed: int
) -> None:
    from veilrec.base import toml

    plan = {"rounds": rounds, "cohort": cohort, "lr": lr}
    text = toml.write({"seed": seed, "plan": plan, "evaluation": {"ks": ks}})
    folder = tmp_path_factory.mktemp("recipe")
    recipe = Recipe.load(write(folder, text))
    assert recipe.values["plan"] | plan == recipe.values["plan"]
    assert Recipe.load(write(folder, recipe.toml(), "b.toml")) == recipe


def test_the_experiment_has_its_parts(tmp_path: Path) -> None:
    recipe = Recipe.load(write(tmp_path, TEXT + '\n[protocol]\nsends = "gradients"\nserver = "adam"\n'))
    experiment = recipe.experiment()
    assert experiment.data.n_users == 40
    model = experiment.model(30, 1)
    assert isinstance(model, FedNCF)
    assert model.parts["user"].scope is Scope.EXPOSED
    assert experiment.protocol.sends_gradients
    assert experiment.plan.rounds == 2
    assert experiment.seed == 3


def test_several_defences_are_a_chain_in_order(tmp_path: Path) -> None:
    catalogue.load_plugin(outside.write(tmp_path, "mine.py", outside.DEFENCE))
    text = '[[defence]]\nname = "Shrink"\nfactor = 0.5\n[[defence]]\nname = "shrink"\n'
    recipe = Recipe.load(write(tmp_path, text), ["defence.1.factor=0.25", "defence.2.name=none"])
    chain = recipe.experiment().defence
    assert [getattr(d, "factor", None) for d in chain.of] == [0.5, 0.25, None]  # type: ignore[attr-defined]


def test_settings_replace_what_the_file_says(tmp_path: Path) -> None:
    path = write(tmp_path, TEXT)
    assert Recipe.load(path, ["plan.lr=0.5"]).values["plan"]["lr"] == 0.5
    assert Recipe.load(path, ["plan.lr.item=2"]).values["plan"]["lr"] == {
        "user": 1.0,
        "default": 0.1,
        "item": 2.0,
    }
    assert Recipe.load(path, ["model.name=FedNCF", "model.head=[4, 2]"]).values["model"]["head"] == [4, 2]
    assert Recipe.load(path, ["plan.rounds=3", "plan.rounds=4"]).values["plan"]["rounds"] == 4
    assert Recipe.load(path, ["seeds=[1, 2]"]).seeds == (1, 2), "seeds replace the file's seed"
    assert Recipe.load(path, ["seeds=[1, 2]"], seed=9).seeds == (9,)


def test_paths_start_from_the_file_or_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    path = write(tmp_path, '[data]\nname = "csv"\npath = "log.csv"\n')
    assert Recipe.load(path).values["data"]["path"] == str(tmp_path / "log.csv")
    assert Recipe.load(path, ["data.path=log.csv"]).values["data"]["path"] == str(
        tmp_path / "here" / "log.csv"
    )


def test_a_sweep_makes_one_recipe_a_cell_and_seed(tmp_path: Path) -> None:
    text = (
        TEXT.replace("seed = 3", "seeds = [0, 1]")
        + '\n[sweep]\nplan.rounds = [2, 3]\n"model.dim" = [4, 8, 16]\n'
    )
    recipe = Recipe.load(write(tmp_path, text))
    cells = recipe.cells()
    assert len(cells) == len({cell.name for cell in cells}) == 12
    chosen = [(c.settings["plan.rounds"], c.settings["model.dim"], c.settings["seed"]) for c in cells]
    assert chosen == list(itertools.product([2, 3], [4, 8, 16], [0, 1]))
    for cell in cells:
        assert cell.recipe.values["plan"]["rounds"] == cell.settings["plan.rounds"]
        assert cell.recipe.seeds == (cell.settings["seed"],)
        assert cell.recipe.origins["model.dim"] == "[sweep]"
        assert not {"sweep", "seeds"} & set(cell.recipe.values)
        assert cell.recipe.cells()[0].recipe == cell.recipe
    assert cells[0].name == "plan.rounds=2,model.dim=4,seed=0"
    again = Recipe.load(write(tmp_path, recipe.toml(), "b.toml"))
    assert [c.recipe for c in again.cells()] == [c.recipe for c in cells]
    with pytest.raises(BadInput, match="makes several experiments"):
        recipe.experiment()


def test_a_sweep_may_replace_whole_tables(tmp_path: Path) -> None:
    catalogue.load_plugin(outside.write(tmp_path, "mine.py", outside.DEFENCE))
    text = '[sweep]\ndefence = [[], [{ name = "Shrink", factor = 0.5 }]]\n'
    cells = Recipe.load(write(tmp_path, text)).cells()
    assert [[d["name"] for d in c.recipe.values["defence"]] for c in cells] == [["none"], ["Shrink"]]
    assert [c.name for c in cells] == ["defence=none,seed=0", "defence=Shrink-0.5,seed=0"]


SWEPT = """
[sweep]
defence = [[{ name = "none" }], [{ name = "apm", low = 3 }]]
"plan.rounds" = [1, 2]
"""


@pytest.mark.parametrize(
    ("order", "swept"),
    [
        ("defence.0.lwo=3", "defence"),
        ("defence.0.low=3", "defence"),
        ("defence=[]", "defence"),
        ("plan.rounds=5", "plan.rounds"),
    ],
)
def test_a_setting_that_the_sweep_replaces_is_refused(tmp_path: Path, order: str, swept: str) -> None:
    """It would change no cell, whether it is right or misspelt."""
    told = complaint(tmp_path, SWEPT, "plan.batch=8", order)
    fix = f"change it there, or --set sweep.{swept}=…"
    assert told == f"--set {order}: the sweep of this recipe sets {swept} itself; {fix}"


def test_settings_beside_a_sweep_hold(tmp_path: Path) -> None:
    """So do those of the sweep itself, and those around what it sets."""
    path = write(tmp_path, SWEPT)
    sets = ["plan.batch=8", 'sweep.defence=[[{name = "apm", low = 7}]]', "sweep.plan.rounds=[3]"]
    (cell,) = Recipe.load(path, sets).cells()
    assert cell.recipe.values["plan"] | {"batch": 8, "rounds": 3} == cell.recipe.values["plan"]
    assert cell.recipe.values["defence"][0]["low"] == 7.0
    part = write(tmp_path, '[[defence]]\nname = "apm"\n[sweep]\n"defence.0.low" = [3, 10]\n', "b.toml")
    for cell in Recipe.load(part, ["defence.0.clip=0.1", "defence.1.name=none"]).cells():
        assert [d["name"] for d in cell.recipe.values["defence"]] == ["APM", "none"]
        assert cell.recipe.values["defence"][0]["clip"] == 0.1
    assert len(Recipe.load(path, ["sweep={}", "defence.0.name=apm"]).cells()) == 1


def test_a_sweep_on_top_is_in_the_way_too(tmp_path: Path) -> None:
    told = complaint(tmp_path, TEXT, "plan.lr.user=2", "sweep.plan.lr=[0.1, 0.2]")
    assert told.startswith("--set plan.lr.user=2: the sweep of this recipe sets plan.lr itself; ")
    beside = ["sweep.plan.lr.user=[1, 2]", "plan.lr.item=2"]
    assert len(Recipe.load(write(tmp_path, TEXT), beside).cells()) == 2


def test_a_plain_recipe_is_its_own_cell(tmp_path: Path) -> None:
    recipe = Recipe.load(write(tmp_path, TEXT))
    assert [cell.recipe for cell in recipe.cells()] == [recipe]


def test_plugins_are_recorded_and_asked_for(tmp_path: Path) -> None:
    plugin = catalogue.load_plugin(outside.write(tmp_path, "mine.py", outside.DEFENCE))
    catalogue.load_plugin(outside.write(tmp_path, "other.py", outside.MODEL))
    recipe = Recipe.load(write(tmp_path, '[[defence]]\nname = "Shrink"\n'))
    assert recipe.values["plugin"] == [{"path": str(plugin.path), "sha256": plugin.sha256}], (
        "only what is used"
    )
    written = write(tmp_path, recipe.toml(), "b.toml")
    assert Recipe.load(written) == recipe
    plugins.forget()
    with pytest.raises(
        BadInput, match=r"b\.toml:\d+: plugin\.0: needs the plugin mine\.py; add --plugin .*mine\.py$"
    ):
        Recipe.load(written)
    catalogue.load_plugin(outside.write(tmp_path, "mine.py", outside.DEFENCE + "\n# changed\n"))
    with pytest.raises(BadInput, match="is not the file that was used"):
        Recipe.load(written)


def test_a_recipe_never_runs_code(tmp_path: Path) -> None:
    outside.write(tmp_path, "mine.py", "raise SystemExit\n")
    assert "needs the plugin mine.py" in complaint(tmp_path, '[[plugin]]\npath = "mine.py"\n')


def test_a_run_directory_needs_no_dataset(tmp_path: Path) -> None:
    text = '[data]\nname = "gone"\nages = [1]\n'
    assert "no dataset" in complaint(tmp_path, text)
    recipe = Recipe.load(write(tmp_path, text), has_data=False)
    assert recipe.values["data"]["ages"] == [1]
    assert recipe.values["data"]["split_seed"] == 0


RETIRED = """
[[defence]]
name = "PARD"
estimators_rest = false
distance = "norm"
[evaluation]
block = 64
candidates = 30
"""


def test_retired_options_are_read_at_what_holds_now(tmp_path: Path) -> None:
    """An earlier version wrote every option into the recipe that it stored with a run."""
    recipe = Recipe.load(write(tmp_path, TEXT + RETIRED))
    assert recipe.values["evaluation"]["candidates"] == 30
    assert "block" not in recipe.values["evaluation"]
    assert "distance" not in recipe.values["defence"][0]


def test_retired_options_at_another_value_are_refused(tmp_path: Path) -> None:
    said = complaint(tmp_path, TEXT + RETIRED.replace('"norm"', '"mean_square"'))
    assert 'defence.0.distance: "mean_square" can be had no longer' in said
    assert said.startswith("a.toml:21: ")
    assert said.endswith("leave it out")


def test_errors_name_the_line_or_the_argument(tmp_path: Path) -> None:
    text = "[plan]\nrounds = 5\nbatch = 0\n"
    assert (
        complaint(tmp_path, text)
        == "a.toml:3: plan.batch: 0 is too small; give a whole number from 1 to 1,000,000,000"
    )
    fixed = text.replace("batch = 0", "batch = 1")
    assert complaint(tmp_path, fixed, "plan.rounds=0").startswith("--set plan.rounds=0: 0 is too small; ")
    text = '[model]\nname = "FedNCF"\nhead = []\n'
    assert complaint(tmp_path, text).startswith("a.toml:3: model.head: ")
    text = '[protocol]\nsends = "gradients"\n'
    assert complaint(tmp_path, text).startswith("a.toml:1: protocol.server: "), (
        "a default: the table has a line"
    )
    sweep = "[sweep]\nplan.rounds = [1, 0]\n"
    assert complaint(tmp_path, sweep).endswith(
        "plan.rounds: 0 is too small; give a whole number from 1 to 1,000,000"
    )


def test_errors_of_a_defence_name_its_place(tmp_path: Path) -> None:
    """Whatever the defence itself refuses, not only what the kinds of its options rule out."""
    two = '[[defence]]\nname = "apm"\n[[defence]]\nname = "laplace"\nclip = 1e40\n'
    words = "1e+40 is too large; give a number from 1e-15 to 1e+15"
    assert complaint(tmp_path, two) == f"a.toml:5: defence.1.clip: {words}"
    told = complaint(tmp_path, two, "defence.1.clip=-1")
    assert told.startswith("--set defence.1.clip=-1: -1 is too small; ")
    sweep = '[sweep]\ndefence = [[], [{ name = "gaussian", clip = 1e40 }]]\n'
    assert complaint(tmp_path, sweep) == f"a.toml:2: sweep.defence.0.clip: {words}"


@pytest.mark.parametrize("name", ["apm", "fednews", "gaussian", "laplace"])
@pytest.mark.parametrize(
    ("clip", "words"),
    [
        ("1e40", "1e+40 is too large"),
        ("1e-40", "1e-40 is too small"),
        ("nan", "nan is no amount"),
        ("inf", "inf is no amount"),
        ("-1", "-1 is too small"),
        ("0", "0 is too small"),
    ],
)
def test_a_clip_that_will_not_do_is_told_before_anything_runs(name: str, clip: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        Recipe.load(None, [f"defence.0.name={name}", f"defence.0.clip={clip}"])
    assert str(caught.value).startswith(f"--set defence.0.clip={clip}: {words}; give a ")


def test_errors_of_a_run_are_placed_too(tmp_path: Path) -> None:
    recipe = Recipe.load(write(tmp_path, TEXT))
    with pytest.raises(BadInput, match=r"a\.toml:16: plan\.lr: too high; lower it$"), recipe.blaming():
        raise BadInput("plan.lr", "too high", "lower it")
    with pytest.raises(BadInput, match=r"^u\.data:3: broken; mend it$"), recipe.blaming():
        raise BadInput("u.data", "broken", "mend it", line=3)
