"""ε beside what the attack reached: the ledger, wherever a reader compares; and a sweep that is legible."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from tests.report.hostile import PAYLOADS
from tests.report.results import result, results
from tests.report.test_page import Words, embedded
from veilrec.metrics.arms import Family, families
from veilrec.metrics.epsilons import HEADS, Epsilon, epsilon_of
from veilrec.report import render
from veilrec.report.frontier import frontier
from veilrec.result import Result

Named = tuple[str, Result]


def family_of(runs: list[Named]) -> Family:
    (family,), _ = families(runs)
    return family


def with_ledger(run: Result, **changes: Any) -> Result:
    return replace(run, ledger={**copy.deepcopy(dict(run.ledger)), **changes})


def mechanism(epsilon: Any, **more: Any) -> dict[str, Any]:
    return {"defence": "apm", "part": "item", "epsilon_per_coordinate": epsilon, **more}


def only(run: Result) -> Epsilon:
    return epsilon_of([run])


def sweep(epsilons: tuple[float, ...] = (3.0, 10.0), clips: tuple[float, ...] = (0.1, 0.5)) -> list[Named]:
    """No defence, and APM at several strengths, one of them collapsed."""
    runs = [("none", result("none", 0))]
    for k, (low, clip) in enumerate((low, clip) for low in epsilons for clip in clips):
        run = result("heavy_noise" if not k else "laplace", 0)
        settings = {**run.settings, "defence": [{"name": "APM", "clip": clip, "low": low}]}
        ledger = with_ledger(result("laplace", 0), mechanisms=[mechanism(low), mechanism(2 * low)]).ledger
        runs.append((f"cell {k}", replace(run, settings=settings, ledger=ledger)))
    return runs


def row_of(text: str, label: str) -> str:
    """The words of an arm's row in the table of verdicts."""
    table = text[text.index('<table class="verdicts">') :]
    rows = [Words(row).text for row in table[: table.index("</table>")].split("<tr")]
    (found,) = [row for row in rows if label in row]
    return found


def test_the_ledger_in_few_words() -> None:
    laplace = only(result("laplace", 0))
    assert laplace == Epsilon("50", "5,382,400", "64,588,800", "12", True, 64588800.0)
    assert laplace.cells == ["50", "5,382,400", "64,588,800"]
    assert str(laplace) == "ε 50 a coordinate, 5,382,400 an upload, 64,588,800 over the run"
    assert only(result("none", 0)).cells == ["no noise declared", "–", "–"]
    assert only(replace(result("none", 0), ledger={})).cells == ["no noise declared", "–", "–"]
    assert str(only(result("none", 0))) == "ε: none"


def test_components_have_a_range_of_what_counts() -> None:
    run = result("laplace", 0)
    parts = [mechanism(60.0), mechanism(30.0), mechanism(2.5, counted=False), mechanism(40.0, counted=True)]
    assert only(with_ledger(run, mechanisms=parts)).coordinate == "30 to 60"


def test_without_a_guarantee_an_upload_has_no_epsilon() -> None:
    found = only(with_ledger(result("laplace", 0), guarantee=False))
    assert found.cells == ["50, not on all that leaves", "none", "none"]
    assert str(found) == "ε 50 a coordinate under noise, none for an upload"
    text = render([("run", with_ledger(result("laplace", 0), guarantee=False))])
    assert "50 of what is under noise: no guarantee for an upload" in row_of(text, "laplace")


def test_the_seed_that_spent_most_is_told_and_one_without_guarantee_spoils_all() -> None:
    more = copy.deepcopy(dict(result("laplace", 1).ledger["composed"]))
    more["epsilon"]["max"] = 70_000_000.0
    two = [result("laplace", 0), with_ledger(result("laplace", 1), composed=more)]
    named = [(str(k), one) for k, one in enumerate(two)]
    assert family_of(named).arms[0].epsilon.run == "70,000,000"
    named[0] = ("0", with_ledger(two[0], guarantee=False))
    assert not family_of(named).arms[0].epsilon.guarantee


@pytest.mark.parametrize("strange", ["30", True, None, [1], {"x": 1}])
def test_what_is_no_number_is_no_epsilon(strange: Any) -> None:
    run = with_ledger(
        result("laplace", 0),
        mechanisms=[mechanism(strange)],
        per_upload={"epsilon": strange},
        composed={"epsilon": {"max": strange}, "uploads": {"max": strange}},
    )
    assert only(run).cells == ["–", "–", "–"]


def test_it_stands_beside_the_attack() -> None:
    text = render(results(("none", "laplace")))
    row = row_of(text, "laplace")
    leak = re.search(r"▲ (0\.\d{3})", row)
    assert leak
    assert "50 5,382,400 an upload 64,588,800 over 12 uploads" in row
    assert row.index("5,382,400") < row.index(leak[1])
    assert "none" in row_of(text, "no defence")
    chart = frontier(family_of(results(("none", "laplace"))))
    for table, _ in chart.tables:
        assert tuple(table.head[-3:]) == HEADS
        assert [row[-3:] for row in table.rows] == [
            ["no noise declared", "–", "–"],
            ["50", "5,382,400", "64,588,800"],
        ]
    hover = [trace["hovertext"][0] for trace in chart.variants[0].figure["data"] if "hovertext" in trace]
    assert hover[0].endswith("<br>ε: none")
    assert hover[1].endswith("<br>ε 50 a coordinate, 5,382,400 an upload, 64,588,800 over the run")


def test_where_nothing_is_under_noise_there_is_no_column() -> None:
    runs = results(("none", "early_stop"))
    assert "a coordinate" not in Words(render(runs)).text
    assert all(set(HEADS).isdisjoint(table.head) for table, _ in frontier(family_of(runs)).tables)


# ---- a sweep


def test_cells_of_a_sweep_are_told_apart() -> None:
    family = family_of(sweep())
    assert [arm.label for arm in family.arms] == [
        "no defence",
        "APM (ε from 3, clip 0.1)",
        "APM (ε from 3, clip 0.5)",
        "APM (ε from 10, clip 0.1)",
        "APM (ε from 10, clip 0.5)",
    ]
    rows = frontier(family).tables[0][0].rows
    assert [row[-3] for row in rows] == ["no noise declared", "3 to 6", "3 to 6", "10 to 20", "10 to 20"]


def test_what_collapsed_steps_back_and_a_legend_names_the_marks() -> None:
    figure = frontier(family_of(sweep())).variants[0].figure
    marks = {trace["name"]: trace for trace in figure["data"] if "hovertext" in trace}
    assert figure["layout"]["showlegend"] is True
    low = marks["APM (ε from 3, clip 0.1) (collapsed)"]
    assert low["marker"]["symbol"].endswith("-open")
    assert low["marker"]["color"] == low["error_x"]["color"] == "@c1 0.45"
    assert marks["APM (ε from 3, clip 0.5)"]["marker"]["color"] == "@c2 1"


@pytest.mark.parametrize(  # all of them are tried as names, on the page
    "payload",
    [pytest.param(word, marks=() if k % 10 == 0 else pytest.mark.slow) for k, word in enumerate(PAYLOADS)],
)
def test_hostile_settings_stay_words(payload: str) -> None:
    """Two defences of a hostile name, apart by a hostile option: their labels are cut, then drawn."""
    runs = sweep((3.0,))
    for k in (1, 2):
        name, one = runs[k]
        settings = {**one.settings, "defence": [{"name": payload, payload: f"{payload}{k}"}]}
        ledger = with_ledger(one, mechanisms=[mechanism(payload), mechanism(3.0)], notes=[payload]).ledger
        runs[k] = (
            name,
            replace(one, settings=settings, ledger=ledger, data={**one.data, **reading(payload)}),
        )
    text = render(runs)
    assert text.count("<script") == text.count("</script>") == 3
    assert not re.search(r"<(?!br>)", json.dumps(embedded(text)["charts"]["f0-frontier"]))


# ---- what the model is told about users


def reading(block: str) -> dict[str, Any]:
    names = ["items", f"{block}=a", f"{block}=b"]
    return {"features": {"width": 3, "names": names, "include_private_features": True}}


def test_what_the_model_reads_stands_above_the_verdicts() -> None:
    runs = [(name, replace(one, data={**one.data, **reading("gender")})) for name, one in results(("none",))]
    words = Words(render(runs)).text
    said = "The model reads 3 features of each user, among them the attributes themselves (gender)"
    assert words.count(said) == 1
    assert (
        words.index("Those that leak most stand on top.")
        < words.index(said)
        < words.index("Audit veilrec;", words.index("Those that leak most"))
    )
    mixed = Words(render([*runs, *results(("laplace",))])).text
    assert f"no defence: {said}" in mixed, "where arms differ, it says whose"
    assert "The model reads" not in Words(render(results(("none",)))).text
