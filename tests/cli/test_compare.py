"""``veilrec compare``: the table, the statements, the exports, and the line for what cannot be compared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.commands import call, tree
from tests.mutated import mutated
from tests.results import attribute, audit, result, spread
from veilrec.base.files import write_json
from veilrec.errors import VeilrecError
from veilrec.recipe.cells import cells_in
from veilrec.result import Result

LAPLACE = {"name": "laplace", "scale": 0.1}


def put(place: Path, one: Result) -> Path:
    place.mkdir(parents=True)
    one.save(place)
    return place


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Two defences with three seeds each, as a folder of cells; a seventh is not finished."""
    cells = []
    for name, defence, ndcg, auc in (("none", None, 0.3, 0.78), ("laplace", LAPLACE, 0.25, 0.61)):
        for seed in range(3):
            put(tmp_path / "sweep" / f"{name},seed={seed}", result(defence, seed, ndcg, auc))
            cells.append({"name": f"{name},seed={seed}", "settings": {"seed": seed}, "finished": True})
    cells.append({"name": "none,seed=3", "settings": {"seed": 3}, "finished": False})
    write_json(tmp_path / "sweep" / "index.json", {"version": 1, "cells": cells})
    return tmp_path / "sweep"


def test_a_folder_of_cells_becomes_one_table(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, "compare", sweep)
    assert answer.code == 0
    for expected in (
        "popularity",
        "0.1000",
        "laplace",
        "gender (AUC)",
        "0.780 [0.7",
        "leave-one-out by time",
        "Leaks: the worst attacker of audit veilrec.",
        "laplace leaks less gender than no defence: AUC 0.610 against 0.780, difference −0.170",
        "no defence recommends better than laplace: ndcg@10 0.300 against 0.250",
    ):
        assert expected in " ".join(answer.out.split()), expected
    assert "\x1b" not in answer.out


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cells": [{"name": "../elsewhere"}]}, r'"../elsewhere" is no name of a cell'),
        ({"cells": [{"name": "/etc"}]}, '"/etc" is no name'),
        ({"cells": [{"name": ".."}]}, '".." is no name'),
        ({"cells": [{"name": "a" * 300}]}, "is no name"),
        ({"cells": [{"name": "a\nb"}]}, "is no name"),
        ({"cells": [{"name": "laplace,seed=0"}] * 2}, "names a cell twice"),
        ({"cells": [{"name": 5}]}, "no list of cells"),
        ({"cells": [{}]}, "no list of cells"),
        ({"cells": ["laplace,seed=0"]}, "no list of cells"),
        ({"cells": {"name": 5}}, "no list of cells"),
        ({}, "no list of cells"),
    ],
)
def test_an_index_names_folders_beside_it_alone(
    sweep: Path, change: dict[str, Any], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(sweep.parent / "elsewhere", result())
    write_json(sweep / "index.json", {"version": 1, **change})
    answer = call(capsys, "compare", sweep)
    assert (answer.code, answer.out) == (4, "")
    assert f"{sweep / 'index.json'}: " in answer.err
    assert says in answer.err
    assert answer.err.count("\n") == 1


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_mutated_index_is_refused_or_lists_what_is_beside_it(sweep: Path, data: st.DataObject) -> None:
    cells = [{"name": f"none,seed={seed}", "settings": {"seed": seed}, "finished": True} for seed in (0, 3)]
    index = data.draw(mutated({"version": 1, "cells": cells}))
    (sweep / "index.json").write_text(json.dumps(index), encoding="utf-8")
    try:
        found = cells_in(sweep)
    except VeilrecError:
        return
    assert all(place.parent == sweep and place.is_dir() for place in found)


def test_a_cell_behind_a_link_is_refused(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(sweep.parent / "elsewhere", result())
    (sweep / "none,seed=3").symlink_to(sweep.parent / "elsewhere")
    answer = call(capsys, "compare", sweep)
    assert answer.code == 4
    assert "none,seed=3: is a link, no folder; put the run itself there" in answer.err


def test_an_index_of_another_version_is_refused(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_json(sweep / "index.json", {"version": 2, "cells": []})
    answer = call(capsys, "compare", sweep)
    assert answer.code == 2
    assert "written as version 2" in answer.err


def test_json_has_every_number(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, "compare", sweep, "--json")
    found = json.loads(answer.out)
    assert found["audit"] == "veilrec"
    assert found["floor"] == 0.1
    assert [group["label"] for group in found["groups"]] == ["no defence", "laplace"]
    assert found["groups"][1]["settings"] == {"defence.0.name": "laplace", "defence.0.scale": 0.1}
    assert set(found["groups"][0]["runs"]) == {"0", "1", "2"}
    leak = found["statements"][0]
    assert leak["shown"]
    assert leak["seeds"] == 3
    assert leak["difference"]["high"] < 0


def test_names_cannot_move_the_cursor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = result(
        {"name": "\x1b[2Jnone"}, privacy={"veilrec": audit({"\x1b[31mgender": attribute(0.8, spread(0.8))})}
    )
    answer = call(capsys, "compare", put(tmp_path / "a", one))
    assert answer.code == 0
    assert "\x1b" not in answer.out
    assert "[31mgender" in answer.out


def test_a_collapsed_run_is_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = result(LAPLACE, ndcg=0.05, auc=0.5)
    put(tmp_path / "a", result())
    put(tmp_path / "b", replace(broken, utility=replace(broken.utility, collapsed=True)))
    answer = call(capsys, "compare", tmp_path / "a", tmp_path / "b")
    said = " ".join(answer.out.split())
    assert "not ranked" in said
    assert "gender: not ranked: below the popularity floor, so not learned: laplace (1 of 1 runs)." in said
    assert "leaks less" not in said


def test_what_cannot_be_compared_gets_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = result()
    sampled = replace(base.utility, protocol="99 candidates")
    a, b = put(tmp_path / "a", base), put(tmp_path / "b", replace(base, utility=sampled))
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "result.json").write_text('{"version": 1}')
    (tmp_path / "unfinished").mkdir()
    put(tmp_path / "torn", base)
    (tmp_path / "torn" / "result.json").write_text("{")
    before = tree(tmp_path)
    for arguments, code, expected in (
        ([a, b], 2, f"{b}: another utility protocol than {a}: 99 candidates; not leave-one-out"),
        ([a, a], 2, f"{a}: named twice; name each run once"),
        ([a, tmp_path / "nothing"], 2, "nothing: no such folder; name a run directory"),
        ([tmp_path / "unfinished"], 2, "unfinished: not a finished run"),
        ([tmp_path / "old"], 2, "written as version 1; this veilrec reads version 3"),
        ([tmp_path / "torn"], 4, "torn/result.json: not what the run wrote; restore the file"),
        ([a, "--metric", "ndcg@11"], 2, f'--metric: {a} has no "ndcg@11"; did you mean "ndcg@10"?'),
        ([a, "--audit", "pard"], 2, '--audit: no run has an audit "pard"; '),
        ([], 2, "Missing argument"),
    ):
        answer = call(capsys, "compare", *arguments)
        assert answer.code == code, (expected, answer)
        assert expected in answer.err
        assert answer.err.count("\n") == 1
        assert answer.err.startswith("veilrec: error: ")
        assert answer.out == ""
    assert tree(tmp_path) == before


@pytest.mark.parametrize("changes", [{"seed": 7}, {"threat": {"known": 0.05}}, {"grants": ["everything"]}])
def test_audits_not_made_alike_are_refused(
    changes: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = result(LAPLACE, auc=0.6)
    other = replace(other, privacy={"veilrec": {**other.privacy["veilrec"], **changes}})
    a, b = put(tmp_path / "a", result()), put(tmp_path / "b", other)
    answer = call(capsys, "compare", a, b)
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.count("\n") == 1
    assert f"{b}: audit veilrec was not made as in {a}: another " in answer.err


def test_one_run_with_several_audits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = audit({"gender": attribute(0.2, spread(0.2))})
    answer = call(capsys, "compare", put(tmp_path / "a", result(privacy={"apm": one, "pard": one})))
    assert answer.code == 0
    said = " ".join(answer.out.split())
    assert "Leaks: the worst attacker of audit apm." in said
    assert "turned round" in said


def test_a_collapsed_run_without_defence_says_nothing_about_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = replace(result(), utility=replace(result().utility, collapsed=True))
    answer = call(capsys, "compare", put(tmp_path / "a", broken))
    assert "no defence: the run is below the popularity floor" in " ".join(answer.out.split())
    assert "the defence" not in answer.out
