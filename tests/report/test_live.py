"""One call from Python: whatever holds the arrays, the same people give the same findings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import veilrec
from tests.audits import audience
from veilrec.errors import BadInput
from veilrec.report.audit.live import LiveAudit

USERS = 120
PEOPLE = audience(3.0, users=USERS)
SEX = [("female", "male")[k] for k in PEOPLE.labels["sex"]]
FRAME = pd.DataFrame({"sex": SEX, "age": PEOPLE.values["age"].round()}, index=PEOPLE.ids)
QUICK: dict[str, Any] = {"attribute": ["sex"], "seeds": 1, "classifiers": ["logistic"]}


def scores(found: LiveAudit) -> Any:
    return found.audit["attributes"]["sex"]["attackers"][0]["scores"]


def test_every_library_gives_the_same_findings(tmp_path: Path) -> None:
    """By ids, in whatever order, live or from files; and by position, where nobody has ids."""
    rows = np.random.default_rng(0).permutation(USERS)
    vectors = pd.DataFrame(PEOPLE.vectors, index=PEOPLE.ids)
    first = veilrec.audit(vectors, FRAME, **QUICK)
    assert scores(first)["auc"]["value"] > 0.9
    np.save(tmp_path / "v.npy", PEOPLE.vectors)
    FRAME.rename_axis("id").to_csv(tmp_path / "users.csv")
    for given, about, more in (
        (vectors.iloc[rows], FRAME, {}),
        (PEOPLE.vectors, FRAME.iloc[rows], {"ids": PEOPLE.ids}),
        (torch.from_numpy(PEOPLE.vectors).requires_grad_(), FRAME, {"by_position": True}),
        (PEOPLE.vectors.astype("f8").tolist(), FRAME.reset_index(names="user_id"), {"by_position": True}),
        (str(tmp_path / "v.npy"), tmp_path / "users.csv", {"by_position": True}),
    ):
        assert scores(veilrec.audit(given, about, **more, **QUICK)) == scores(first)
    by_row = veilrec.audit(PEOPLE.vectors, {"sex": np.array(SEX)}, **QUICK)
    again = veilrec.audit(pd.DataFrame(PEOPLE.vectors), FRAME[["sex"]].reset_index(drop=True), **QUICK)
    assert scores(by_row) == scores(again)


def test_what_is_missing_is_unknown_and_whole_numbers_stay_whole() -> None:
    about = FRAME.assign(group=[float(k % 3) if k > 5 else None for k in range(USERS)], sex=SEX)
    about["sex"] = about["sex"].astype("category")
    about.iloc[:4, about.columns.get_loc("sex")] = pd.NA
    found = veilrec.audit(PEOPLE.vectors, about, by_position=True, **{**QUICK, "attribute": ["sex", "group"]})
    entries = found.audit["attributes"]
    assert entries["group"]["classes"] == ["0", "1", "2"]
    assert sum(entries["group"]["counts"]) == USERS - 6
    assert sum(entries["sex"]["counts"]) == USERS - 4


def test_three_lines_make_a_page_and_a_comparison(tmp_path: Path) -> None:
    found = veilrec.audit(PEOPLE.vectors, FRAME, by_position=True, borders={"age": [30, 50]}, **QUICK)
    assert found.report(tmp_path / "a.html") == tmp_path / "a.html"
    page = (tmp_path / "a.html").read_text()
    assert "These vectors give away" in page
    assert "veilrec audit" not in page[page.index("What to do next") :], "nobody can type what was given"
    noise = np.random.default_rng(1).normal(size=PEOPLE.vectors.shape)
    after = veilrec.audit(noise, FRAME, by_position=True, borders={"age": [30, 50]}, **QUICK)
    assert any(one.sentence.startswith("sex leaks less after") for one in found.compare(after).changes)
    found.save(tmp_path / "a.json")
    assert LiveAudit.load(tmp_path / "a.json").findings[0].sentence == found.findings[0].sentence


@pytest.mark.slow
def test_a_control_may_be_live_too() -> None:
    others = audience(0.0, first=10_000, users=USERS)
    about = {"sex": [("female", "male")[k] for k in others.labels["sex"]]}
    quick = {**QUICK, "control": others.vectors, "control_attributes": about}
    found = veilrec.audit(PEOPLE.vectors, FRAME[["sex"]], by_position=True, **quick)
    assert "it finds less" in found.findings[0].entry["control"]["sentence"]


# what is given · what the line says
BAD: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "no ids": ((PEOPLE.vectors, FRAME), {}, "vectors: has no ids, so nothing .* by_position=True"),
    "ids of one side": ((PEOPLE.vectors, {"sex": SEX}), {"ids": PEOPLE.ids}, "attributes: has no ids, and"),
    "a list of labels": ((PEOPLE.vectors, SEX), {}, "attributes: list says nothing about whose it is"),
    "columns that differ": ((PEOPLE.vectors, {"a": [1], "b": [1, 2]}), {}, "attributes: columns of lengths"),
    "too few ids": ((PEOPLE.vectors, FRAME), {"ids": ["a"]}, "ids: 1 ids for 120 vectors"),
    "an id twice": ((PEOPLE.vectors, FRAME), {"ids": ["a"] * USERS}, 'ids:2: "a" is in line 1 as well'),
    "one axis": ((np.zeros(USERS), {"sex": SEX}), {}, r"vectors: has shape \[120\]; give one row a user"),
    "ragged rows": (([[1], [1, 2]], {"sex": SEX}), {}, "vectors: "),
    "not finite": ((PEOPLE.vectors * np.nan, {"sex": SEX}), {}, "vectors: row 1, column 1 is nan"),
    "no share": ((PEOPLE.vectors, {"sex": SEX}), {"known": 2}, "known: 2 is no share"),
    "no classifier": ((PEOPLE.vectors, {"sex": SEX}), {"classifiers": ["x"]}, 'classifiers: no class.* "x"'),
    "no column": ((PEOPLE.vectors, {"sex": SEX}), {"attribute": ["sx"]}, 'there is no column "sx"; did you'),
    "nobody's control": (
        (PEOPLE.vectors, {"sex": SEX}),
        {"control": PEOPLE.vectors},
        "control: nothing says who its people are; give control_attributes",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_gets_one_line(name: str) -> None:
    given, named, said = BAD[name]
    with pytest.raises(BadInput, match=said):
        veilrec.audit(*given, **named)


def test_importing_it_loads_nothing_heavy() -> None:
    """And names of defences and erasers are at hand all the same."""
    code = "import sys, veilrec; print(*sys.modules, *dir(veilrec))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    told = set(done.stdout.split())
    assert {"Laplace", "LEACE", "FedMF", "audit"} <= told
    assert not {"torch", "numpy", "pandas", "sklearn"} & told


def test_entries_are_names_of_the_package() -> None:
    from veilrec.defences.laplace import Laplace
    from veilrec.erasers.leace import LEACE

    assert veilrec.Laplace is Laplace
    assert veilrec.LEACE is LEACE
    with pytest.raises(AttributeError, match="no attribute 'component_of'"):
        assert veilrec.component_of
