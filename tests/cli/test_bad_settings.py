"""Recipes and arguments that cannot be right: one line that says what to do, exit code 2, nothing written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch

from tests import outside
from tests.cli.commands import call, tree
from veilrec.recipe import plugins

GOOD = '[data]\nname = "synthetic"\nusers = 30\nitems = 40\n[plan]\nrounds = 1\n'

# what the recipe says · what is given beside it · what the answer must contain
RECIPES = {
    "unknown section": (
        "[plam]\nrounds = 1\n",
        [],
        'a.toml:1: plam: a recipe has no such section; did you mean "plan"?',
    ),
    "key without its section": (
        "rounds = 1\n",
        [],
        "a.toml:1: rounds: a recipe has no such section; it belongs under [plan]",
    ),
    "unknown key": (
        "[plan]\nronds = 1\n",
        [],
        'a.toml:2: plan.ronds: a recipe has no such option; did you mean "rounds"?',
    ),
    "unknown option of a model": (
        '[model]\nname = "FedMF"\nhead = [1]\n',
        [],
        "a.toml:3: model.head: FedMF has no such option; ",
    ),
    "unknown option of a dataset": (
        "[data]\nuser = 3\n",
        [],
        'a.toml:2: data.user: synthetic has no such option; did you mean "users"?',
    ),
    "unknown model": (
        '[model]\nname = "FedNFC"\n',
        [],
        'a.toml:2: model.name: no model "FedNFC"; did you mean "FedNCF"?',
    ),
    "unknown protocol": ('[protocol]\nname = "avg"\n', [], 'a.toml:2: protocol.name: no protocol "avg"; '),
    "unknown defence": (
        '[[defence]]\nname = "nothing"\n',
        [],
        'a.toml:2: defence.0.name: no defence "nothing"; ',
    ),
    "unknown dataset": (
        '[data]\nname = "ml-10m"\n',
        [],
        'a.toml:2: data.name: no dataset "ml-10m"; did you mean "ml-1',
    ),
    "text for a number": (
        '[plan]\nrounds = "ten"\n',
        [],
        'a.toml:2: plan.rounds: "ten" will not do; give a whole number',
    ),
    "number for a text": ("[model]\nname = 5\n", [], "a.toml:2: model.name: 5 will not do; give text"),
    "fraction for a count": (
        "[plan]\nrounds = 1.5\n",
        [],
        "a.toml:2: plan.rounds: 1.5 will not do; give a whole number",
    ),
    "truth for a number": ("[plan]\nlr = true\n", [], "a.toml:2: plan.lr: true will not do; give "),
    "a value outside a choice": (
        '[plan]\noptimiser = "adm"\n',
        [],
        'a.toml:2: plan.optimiser: "adm" is not allowed; did you mean "adam"?',
    ),
    "a list with a wrong entry": (
        '[evaluation]\nks = [5, "x"]\n',
        [],
        'a.toml:2: evaluation.ks.1: "x" will not do; give a whole number',
    ),
    "not a number": ("[plan]\nlr = nan\n", [], "a.toml:2: plan.lr: nan is no amount; give a finite number"),
    "infinity": (
        "[plan]\ncohort = inf\n",
        [],
        "a.toml:2: plan.cohort: inf is no amount; give a finite number",
    ),
    "no rounds": (
        "[plan]\nrounds = 0\n",
        [],
        "a.toml:2: plan.rounds: 0 is too small; give a whole number from 1 to 1,000,000",
    ),
    "more than everybody": ("[plan]\ncohort = 1.5\n", [], "a.toml:2: plan.cohort: 1.5 is no share; "),
    "a negative rate": (
        "[plan]\nlr = -0.1\n",
        [],
        "a.toml:2: plan.lr: -0.1 is too small; give a number from 0 to 1e+30",
    ),
    "a rate for no part": (
        "[plan]\nlr = { usr = 0.1 }\n",
        [],
        'a.toml:2: plan.lr.usr: the model has no such part; did you mean "user"?',
    ),
    "a size for no part": (
        "[model]\nscale = { itme = 0.1 }\n",
        [],
        'a.toml:2: model.scale.itme: the model has no such table of vectors; did you mean "item"?',
    ),
    "a size for what is no table": (
        '[model]\nname = "FedNCF"\nscale = { mlp1 = 0.1 }\n',
        [],
        "a.toml:3: model.scale.mlp1: the model has no such table of vectors; choose one of: ",
    ),
    "a halving rate for no part": (
        '[protocol]\nserver = "adam"\nserver_halves = { itme = 5 }\n',
        [],
        'a.toml:3: protocol.server_halves.itme: the model has no such part; did you mean "item"?',
    ),
    "a scope that is no option any more": (
        '[model.scopes]\nuser = "exposed"\n',
        [],
        'a.toml:1: model.scopes: {user = "exposed"} can be had no longer; what holds is {}; leave it out',
    ),
    "a model without width": (
        "[model]\ndim = -1\n",
        [],
        "a.toml:2: model.dim: -1 is too small; give a whole number from 1 to 65,536",
    ),
    "a head without layers": ('[model]\nname = "FedNCF"\nhead = []\n', [], "a.toml:3: model.head: "),
    "gradients for nobody": (
        '[protocol]\nsends = "gradients"\n',
        [],
        "protocol.server: gradients need a server that steps; ",
    ),
    "seed and seeds": (
        "seed = 1\nseeds = [1]\n",
        [],
        "a.toml:2: seeds: there is a seed as well; keep one of the two",
    ),
    "no seeds": ("seeds = []\n", [], "a.toml:1: seeds: an empty list; name at least one seed"),
    "a seed twice": ("seeds = [1, 1]\n", [], "a.toml:1: seeds: the same seed twice; "),
    "a negative seed": ("seed = -1\n", [], "a.toml:1: seed: -1 is too small; "),
    "a seed on the command line": ("", ["--seed", "-1"], "--seed: -1 is too small; "),
    "no such metric": (
        '[evaluation]\nmetrics = ["auc"]\n',
        [],
        'a.toml:2: evaluation.metrics: no metric "auc"; ',
    ),
    "selection by what is not measured": (
        "[evaluation]\nks = [5]\n",
        [],
        'evaluation.select: no metric "ndcg@10"; ',
    ),
    "more candidates than items": (
        "[evaluation]\ncandidates = 500\n",
        [],
        "a.toml:2: evaluation.candidates: 500 asked for, ",
    ),
    "negative silos": ("[data]\nsilos = -2\n", [], "a.toml:2: data.silos: -2 is too small; "),
    "more silos than users": (
        "[data]\nsilos = 5000\n",
        [],
        "a.toml:2: data.silos: 5000 silos for 300 users; ",
    ),
    "consent beyond everybody": (
        "[data]\nconsent = 2\n",
        [],
        "a.toml:2: data.consent: 2 is too large; give a number from 0 to 1",
    ),
    "consent to no attribute": (
        "[data]\nconsent = { gendre = 0.5 }\n",
        [],
        'data.consent.gendre: the data has no such attribute; did you mean "gender"?',
    ),
    "a path that is not read": (
        '[data]\npath = "x"\n',
        [],
        "a.toml:2: data.path: synthetic reads no file; remove it",
    ),
    "a path that is missing": (
        '[data]\nname = "csv"\n',
        [],
        "data.path: csv needs a file or folder; set data.path",
    ),
    "a dataset that is not there": ('[data]\nname = "ml-1m"\n', [], "veilrec data get ml-1m"),
    "a file that is not there": ('[data]\nname = "csv"\npath = "gone.csv"\n', [], "gone.csv"),
    "no such part to record": (
        '[record]\nparts = ["haed"]\n',
        [],
        'a.toml:2: record.parts: nothing called "haed" is uploaded; ',
    ),
    "a table for a list": (
        '[defence]\nname = "none"\n',
        [],
        "a.toml:1: defence: not a list of tables; write each as [[defence]]",
    ),
    "a list for a table": ("[[plan]]\nrounds = 1\n", [], "a.toml:1: plan: not a table; write it as [plan]"),
    "a defence without a name": ("[[defence]]\n", [], "a.toml:1: defence.0: has no name; "),
    "a sweep of an unknown key": (
        "[sweep]\nplan.ronds = [1, 2]\n",
        [],
        'a.toml:2: sweep.plan.ronds: a recipe has no such option; did you mean "rounds"?',
    ),
    "a sweep without choices": (
        "[sweep]\nplan.rounds = 5\n",
        [],
        "a.toml:2: sweep.plan.rounds: no list of choices; ",
    ),
    "an empty sweep": (
        "[sweep]\nplan.rounds = []\n",
        [],
        "a.toml:2: sweep.plan.rounds: no list of choices; ",
    ),
    "a sweep with one bad choice": (
        "[sweep]\nplan.rounds = [1, 0]\n",
        [],
        "a.toml:2: sweep.plan.rounds: 0 is too small; give a whole number from 1 to 1,000,000",
    ),
    "a sweep of seeds": (
        "[sweep]\nseed = [1, 2]\n",
        [],
        "sweep.seed: cannot be swept; use seeds = [0, 1, 2]",
    ),
    "a threat to no share": (
        "[threat]\nknown = 2\n",
        [],
        "a.toml:2: threat.known: 2 is too large; give a number above 0 and below 1",
    ),
    "a threat to nobody in particular": (
        '[threat]\nknown = "consentng"\n',
        [],
        'a.toml:2: threat.known: "consentng" is not allowed; did you mean "consenting"?',
    ),
    "a threat to no attribute": (
        '[threat]\nattributes = ["gendre"]\n',
        [],
        'a.toml:2: threat.attributes: the data has no attribute "gendre"; did you mean "gender"?',
    ),
    "a plugin that was not given": (
        '[[plugin]]\npath = "mine.py"\n',
        [],
        "a.toml:1: plugin.0: needs the plugin mine.py; add --plugin mine.py",
    ),
    "not TOML": ("[plan]\nrounds = = 1\n", [], "a.toml:2: not TOML: "),
    "a table that does not end": ("[plan\n", [], "a.toml:1: not TOML: "),
    "a key twice": (
        "[plan]\nrounds = 1\nrounds = 2\n",
        [],
        "a.toml:3: not TOML: the same key twice; correct that line",
    ),
    "a section twice": ("[plan]\n[plan]\n", [], "a.toml:2: not TOML: "),
    "--set without =": (
        GOOD,
        ["--set", "plan.rounds"],
        "--set plan.rounds: has no =; write it as section.key=value",
    ),
    "--set of nothing": (GOOD, ["--set", "=5"], "--set =5: names no key; "),
    "--set of an unknown key": (
        GOOD,
        ["--set", "plan.ronds=5"],
        '--set plan.ronds=5: a recipe has no such option; did you mean "rounds"?',
    ),
    "--set of an unknown section": (
        GOOD,
        ["--set", "plam.rounds=5"],
        '--set plam.rounds=5: plam: a recipe has no such section; did you mean "plan"?',
    ),
    "--set to what will not do": (
        GOOD,
        ["--set", "plan.rounds=many"],
        '--set plan.rounds=many: "many" will not do; give a whole number',
    ),
    "--set below a value": (
        GOOD,
        ["--set", "plan.rounds.x=1"],
        "--set plan.rounds.x: goes below a value that is no table; ",
    ),
    "--set past the end": (
        GOOD,
        ["--set", "defence.3.name=none"],
        "the list has 0 entries; use a place from 0 to 0",
    ),
    "an unknown device": (GOOD, ["--device", "abacus"], '--device: "abacus" is no device; use cpu or cuda'),
    "a device of another kind": (
        GOOD,
        ["--device", "meta"],
        '--device: "meta" is not supported; use cpu or cuda',
    ),
    "an unknown argument": (GOOD, ["--sed", "1"], "--sed"),
    "a seed that is no number": (GOOD, ["--seed", "x"], "--seed"),
    "a folder in use": (
        GOOD,
        ["--out", "full"],
        "full: not empty; continue it with --resume, or choose another folder with --out",
    ),
    "a file for a folder": (
        GOOD,
        ["--out", "full/note.txt"],
        "note.txt: not a folder; choose another one with --out",
    ),
    "nothing to resume": (GOOD, ["--out", "full", "--resume"], "full: not a run; "),
    "a plugin that is not there": (
        GOOD,
        ["--plugin", "gone.py"],
        "gone.py: cannot be read: No such file or directory; check --plugin",
    ),
    "a plugin that is not Python": (
        GOOD,
        ["--plugin", "full/note.txt"],
        "note.txt: a plugin is a Python file; ",
    ),
    "a plugin that fails": (
        GOOD,
        ["--plugin", "broken.py"],
        "broken.py:2: ZeroDivisionError: division by zero; ",
    ),
    "a plugin of a taken name": (
        GOOD,
        ["--plugin", "taken.py"],
        'taken.py: there is an entry "FedMF" in models already; ',
    ),
}


@pytest.fixture(autouse=True)
def no_plugin_stays() -> Iterator[None]:
    """One that was refused is loaded all the same, and the tests after this one share the process."""
    before = {plugin.path for plugin in plugins.loaded()}
    yield
    for plugin in plugins.loaded():
        if plugin.path not in before:
            plugins.forget(plugin.path)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with something in it, and no dataset anywhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VEILREC_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("VEILREC_DATA_DIR", raising=False)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note.txt").write_text("mine\n")
    (tmp_path / "broken.py").write_text("x = 1\n1 / 0\n")
    outside.write(tmp_path, "taken.py", outside.MODEL.replace("ItemBias", "FedMF"))
    return tmp_path


def refused(
    capsys: pytest.CaptureFixture[str], place: Path, arguments: Sequence[str | Path], message: str
) -> None:
    before = tree(place)
    answer = call(capsys, *arguments)
    assert answer.code == 2, answer
    assert answer.out == ""
    assert answer.err.startswith("veilrec: error: ")
    assert answer.err.count("\n") == 1, "one line"
    assert answer.err.endswith("\n")
    assert message in answer.err
    assert "; " in answer.err, "it says what to do"
    assert tree(place) == before, "nothing is written"


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_that_cannot_be_right(capsys: pytest.CaptureFixture[str], place: Path, name: str) -> None:
    text, arguments, message = RECIPES[name]
    (place / "a.toml").write_text(text, encoding="utf-8")
    refused(capsys, place, ["run", "a.toml", *arguments], message)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'[plan]\nrounds = 1\n[model]\nname = "Fed\xe9"\n', "a.toml:4: not UTF-8; save it in that encoding"),
        (b"\xff\xfe[\x00p\x00", "a.toml:1: not UTF-8; "),
        (b"[plan]\nrounds = \x001\n", "a.toml:2: not TOML: "),
        (b"x" * (1 << 21), "a.toml: too large for a recipe; "),
    ],
)
def test_a_recipe_that_cannot_be_read(
    capsys: pytest.CaptureFixture[str], place: Path, data: bytes, message: str
) -> None:
    (place / "a.toml").write_bytes(data)
    refused(capsys, place, ["run", "a.toml"], message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "gone.toml"], "gone.toml: no such file; check the path"),
        (["run", "full"], "full: a folder, not a file; name the recipe in it"),
        (["run"], "Missing argument"),
        (["rnu"], "No such command"),
        (["config", "show", "gone.toml"], "gone.toml: no such file; check the path"),
        (["list", "modles"], 'modles: no such catalogue; did you mean "models"?'),
        (["evaluate", "full"], "not a finished run: "),
        (["recommend", "full", "--user", "x"], "not a finished run: "),
        (["recommend", "full"], "Missing option"),
        (["evaluate", "gone"], "not a finished run: "),
        (["demo", "--out", "full/note.txt"], "'full/note.txt' is a file"),
    ],
)
def test_an_argument_that_cannot_be_right(
    capsys: pytest.CaptureFixture[str], place: Path, arguments: list[str], message: str
) -> None:
    refused(capsys, place, arguments, message)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_is_not_there(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    (place / "a.toml").write_text(GOOD)
    refused(
        capsys,
        place,
        ["run", "a.toml", "--device", "cuda"],
        "torch finds no CUDA device here; use --device cpu",
    )


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="permissions do not bind this user")
def test_a_recipe_that_may_not_be_read(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    (place / "a.toml").write_text(GOOD)
    (place / "a.toml").chmod(0)
    refused(capsys, place, ["run", "a.toml"], "cannot be read: Permission denied; ")
