"""``veilrec run --plan``: what a run needs, told before it starts; and memory that runs out all the same."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import call, tree
from veilrec.base.limits.machine import Room
from veilrec.runs.needs import estimate

RECIPE = """
[data]
name = "synthetic"
users = 30
items = 40
[model]
name = "FedMF"
dim = 4
[plan]
rounds = 3
evaluate_every = 1
[evaluation]
candidates = 9
"""
GREEDY = '''"""Greedy: in its second round it wants what no machine has.

Paper: none.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor

from veilrec.base.params import Params
from veilrec.model import Device
from veilrec.models.fedmf import FedMF

__all__ = ["Greedy"]


class Greedy(FedMF):
    """A product, but for that.

    >>> Greedy(3, dim=2).dim
    2
    """

    def cohort_loss(self, params: Params, devices: Device) -> Tensor:
        rank = os.environ.get("RANK", os.environ.get("GREEDY", ""))
        if rank and rank == os.environ.get("GREEDY") and int(devices.round) > 0:
            torch.zeros(1 << 45)
        return super().cohort_loss(params, devices)
'''
SAID = "out of memory; end what else runs there, train fewer devices at once (--set plan.chunk=16)"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VEILREC_HOME", str(tmp_path / "home"))
    (tmp_path / "a.toml").write_text(RECIPE)
    return tmp_path


def test_a_plan_is_told_and_nothing_is_written(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    before = tree(place)
    answer = call(capsys, "run", "a.toml", "--plan")
    assert answer.code == 0, answer
    for words in ("3 rounds of 30 of 30 devices", "training", "ranking", "peak: ", "on the disk: about "):
        assert words in answer.out
    assert tree(place) == before


def test_a_plan_for_machines(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    answer = call(capsys, "run", "a.toml", "--plan", "--json", "-q")
    (told,) = json.loads(answer.out)["runs"]
    assert told["peak"]["bytes"] == max(phase["bytes"] for phase in told["phases"])
    assert told["room"]["bytes"] > told["held"] > 0
    assert (told["rounds"], told["cohort"], told["looks"]) == (3, 30, 3)
    assert answer.err == ""


def test_a_sweep_is_planned_cell_by_cell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: Path
) -> None:
    monkeypatch.setattr(estimate, "held", lambda: 250 << 20)  # whatever other tests have left to give back
    seeds = ["--set", "seeds=[0, 1, 2]", "--set", "sweep.model.dim=[4, 4096]"]
    told = json.loads(call(capsys, "run", "a.toml", *seeds, "--plan", "--json", "-q").out)["runs"]
    assert [one["settings"] for one in told] == [{"model.dim": 4}, {"model.dim": 4096}], "seeds need the same"
    answer = call(capsys, "run", "a.toml", *seeds, "--plan", "-q")
    assert "2 kinds of run, one after another; this one needs most: model.dim = 4096" in answer.out


@pytest.mark.parametrize(
    "sweep", [[], ["--set", "sweep.plan.rounds=[1, 1000000]"]], ids=["one", "of several"]
)
def test_what_cannot_fit_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: Path, sweep: list[str]
) -> None:
    monkeypatch.setattr(estimate, "room", lambda: Room(64 << 20, "the memory that is free"))
    before, sets = tree(place), sweep or ["--set", "plan.rounds=1000000"]
    answer = call(capsys, "run", "a.toml", *sets, "--out", "x", "-q")
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert "needs about" in answer.err
    assert "lower it from 1,000,000 to " in answer.err
    assert tree(place) == before


def test_memory_that_runs_out_leaves_a_run_that_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: Path
) -> None:
    (place / "greedy.py").write_text(GREEDY)
    sets = ["a.toml", "--plugin", "greedy.py", "--set", "model.name=Greedy", "--json", "-q"]
    whole = json.loads(call(capsys, "run", *sets, "--out", "whole").out)
    monkeypatch.setenv("GREEDY", "yes")
    answer = call(capsys, "run", *sets, "--out", "x")
    assert answer.code == 3
    assert answer.err == f"veilrec: error: round 2, training: {SAID}, or take --device cpu\n"
    monkeypatch.delenv("GREEDY")
    resumed = json.loads(call(capsys, "run", *sets, "--out", "x", "--resume").out)
    assert resumed["utility"] == whole["utility"]
    assert {name.split("/")[0] for name in tree(place / "x")} == {
        name.split("/")[0] for name in tree(place / "whole")
    }


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits as Linux has them")
@pytest.mark.parametrize("megabytes", [700, 900, 1100, 1300])
def test_under_a_limit_a_run_ends_with_one_line(place: Path, megabytes: int) -> None:
    """What it says depends on the limit: that it cannot fit, or that memory ran out; or it was enough."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    sets = [
        f"--set={one}" for one in ("data.users=2000", "data.items=2000", "model.dim=64", "plan.chunk=1500")
    ]
    command = [
        sys.executable,
        "-m",
        "veilrec",
        "run",
        "a.toml",
        "-q",
        *sets,
        "--set=plan.rounds=1",
        "--out",
        "x",
    ]
    done = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 2, 3), done.stderr
    assert done.stderr.count("\n") == (done.returncode != 0)
    assert (place / "x").exists() == (done.returncode != 2)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="torchrun's signals as Linux has them")
@pytest.mark.parametrize("rank", ["0", "1"])
def test_memory_that_runs_out_on_any_rank_ends_all_with_one_line(place: Path, rank: str) -> None:
    (place / "greedy.py").write_text(GREEDY)
    start = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "-m", "veilrec", "run"]
    rest = [
        "a.toml",
        "--plugin",
        "greedy.py",
        "--set",
        "model.name=Greedy",
        "--set",
        "plan.chunk=4",
        "-q",
        "--out",
        "x",
    ]
    done = subprocess.run(
        [*start, *rest],
        env={**os.environ, "GREEDY": rank},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if line.startswith("veilrec: error")]
    assert len([line for line in said if f"round 2, training: {SAID}" in line]) == 1, done.stderr
    assert "exitcode  : 3" in done.stderr
