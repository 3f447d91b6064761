"""What a page says: the numbers of the results, each beside its floor, and nothing that was not shown."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

from tests.report.hostile import PAYLOADS, hostile_run
from tests.report.results import FLOOR, RESAMPLES, result, results
from veilrec.errors import BadInput
from veilrec.metrics.arms import families
from veilrec.report import render
from veilrec.report.findings import claims, findings, table_of_verdicts
from veilrec.report.frontier import best, frontier, verdict_of
from veilrec.report.page import page
from veilrec.report.verdicts import verdict
from veilrec.result import Result

HEAT = {"texttemplate", "textfont", "showscale"}  # which the script does in one way


class Words(HTMLParser):
    """The text of a page without its scripts and styles, and every place that it points to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.said: list[str] = []
        self.points: list[str] = []
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside += [tag] if tag in {"script", "style"} else []
        self.points += [value or "" for name, value in attrs if name in {"src", "href", "action", "data"}]

    def handle_endtag(self, tag: str) -> None:
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        self.said += [] if self._inside else [data]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.said).split())


def embedded(text: str) -> dict[str, Any]:
    """The data that the page's script reads."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    made: dict[str, Any] = json.loads(found[1])
    return made


@pytest.fixture(scope="module")
def runs() -> list[tuple[str, Result]]:
    return results(("none", "laplace", "early_stop", "heavy_noise"))


@pytest.fixture(scope="module")
def text(runs: list[tuple[str, Result]]) -> str:
    return render(runs)


def test_numbers_are_those_of_the_results(runs: list[tuple[str, Result]], text: str) -> None:
    words = Words(text).text
    seeds = [one for name, one in runs if "/laplace/" in name]
    useful = np.mean([one.utility.test["ndcg@10"] for one in seeds])
    leaks = [one.privacy["veilrec"]["attributes"]["gender"]["verdict"]["auc"]["value"] for one in seeds]
    assert f"{useful:.4f}" in words
    assert f"{np.mean(leaks):.3f}" in words
    assert f"popularity {FLOOR:.4f}" in words
    assert "which items each user touched in training" in words
    assert "64,588,800" in words
    assert words.count("no formal guarantee") == 3


def test_a_single_run_keeps_its_own_interval_and_words() -> None:
    only = result("none", 0)
    given = only.privacy["veilrec"]["attributes"]["gender"]["verdict"]
    words = Words(render([("runs/x", only)])).text
    assert given["sentence"] in words
    assert f"{given['auc']['value']:.3f}" in words
    assert f"{given['auc']['low']:.3f}–{given['auc']['high']:.3f}" in words
    assert "What the differences show" not in words


def test_worst_comes_first_and_what_collapsed_comes_last(runs: list[tuple[str, Result]]) -> None:
    (family,), _ = families(runs)
    found = findings(family)
    assert found[0].arm.label == "no defence"
    assert found[0].title == "gender"
    assert found[0].sentence == (
        "An attacker who sees the uploads, and was granted which items each user touched in training, "
        "guesses gender right for 78 of 100 users (always saying male is right for 71)."
    )
    assert [one.arm.label for one in found[-4:]] == ["heavy noise"] * 4
    shown = [one.verdict.leaning != "none" for one in found]
    assert shown == sorted(shown, reverse=True)


def test_collapsed_runs_are_not_ranked(runs: list[tuple[str, Result]]) -> None:
    (family,), _ = families(runs)
    rows = table_of_verdicts(family, "veilrec")
    assert [arm.label for arm, _ in rows] == ["no defence", "early stop", "laplace", "heavy noise"]
    points = verdict_of(family, "veilrec", ["gender"])
    assert [point.arm.label for point in best(points)] == ["laplace", "early stop", "no defence"]
    assert not [one for one in claims(family)["veilrec"] if "heavy noise" in one.sentence]
    assert "not ranked" in Words(render(runs)).text


def test_differences_are_claimed_where_the_pairs_show_them(runs: list[tuple[str, Result]]) -> None:
    (family,), _ = families(runs)
    said = {(one.about, one.first, one.second): one for one in claims(family)["veilrec"]}
    metric = family.metric
    assert said["gender", "laplace", "no defence"].sentence.startswith("laplace leaks less gender than no ")
    assert said[metric, "no defence", "laplace"].shown
    assert not said["age", "no defence", "early stop"].shown
    shown = [one.shown for one in claims(family)["veilrec"]]
    assert shown == sorted(shown, reverse=True)


def test_a_run_against_its_twin_shows_nothing() -> None:
    twin = [(f"twin {k}", replace(one, settings={**one.settings, "model": {"name": "Other"}}))
            for k, (_, one) in enumerate(results(("none",)))]  # fmt: skip
    (family,), _ = families([*results(("none",)), *twin])
    found = claims(family)["veilrec"]
    assert found
    assert not any(one.shown for one in found)
    assert "No difference is shown." in Words(render([*results(("none",)), *twin])).text


def test_one_seed_is_said_to_be_one_seed() -> None:
    words = Words(render(results(("none", "laplace"), seeds=1))).text
    assert "leaks less" in words
    assert "; one seed: true of these two runs, another training may differ." in words
    assert "one seed:" not in Words(render(results(("none", "laplace"), seeds=2))).text


def test_wrong_on_purpose_is_leakage() -> None:
    (family,), _ = families(results(("none", "flipped")))
    found = next(one for one in findings(family) if one.title == "gender" and one.arm.defended)
    assert found.verdict.leaning == "below"
    assert "reads gender turned round: given a female and a male user, it takes the one for" in found.sentence
    turned = verdict(family.arms[1], "veilrec", "gender")
    assert turned is not None
    assert turned.leak.value == pytest.approx(1 - turned.measure.value)
    assert turned.leak.value > 0.6


def test_seeds_that_read_in_two_directions_do_not_cancel_out() -> None:
    """An AUC of 0.8 in one seed and of 0.2 in two is a leak, though their mean is 0.4."""
    low, high = (result("flipped", seed) for seed in (0, 1)), result("none", 2)
    runs = [("a", next(low)), ("b", next(low)), ("c", replace(high, settings=result("flipped", 2).settings))]
    (family,), _ = families(runs)
    found = verdict(family.arms[0], "veilrec", "gender")
    assert found is not None
    assert (found.leaning, found.turned) == ("above", 2)
    assert found.measure.value > 0.65
    told = next(one for one in findings(family) if one.title == "gender")
    assert "reads gender, turned round in 2 of 3 seeds: AUC 0." in told.sentence
    assert "turned in 2 of 3 seeds" in Words(render(runs)).text


def test_the_floor_of_shuffled_labels_stands_beside_a_verdict() -> None:
    one = result("none")
    audit = copy.deepcopy(dict(one.privacy["veilrec"]))
    audit["attributes"]["gender"]["verdict"]["shuffled"] = {"value": 0.5341, "high": 0.56}
    words = Words(render([("run", replace(one, privacy={"veilrec": audit}))])).text
    assert words.count("shuffled labels 0.53") == 2  # in the finding, and in the table
    assert "None" not in words


def test_a_page_says_how_many_of_its_verdicts_chance_alone_would_raise() -> None:
    words = Words(render(results(("none", "laplace"), seeds=2))).text
    assert (
        "There are 8 verdicts here. If nothing leaked, chance alone would raise 0.4 of 8 on average." in words
    )
    one = result("none")
    audit = copy.deepcopy(dict(one.privacy["veilrec"]))
    for attacker in audit["attributes"]["gender"]["attackers"]:
        attacker["p"] = None
    words = Words(render([("run", replace(one, privacy={"veilrec": audit}))])).text
    assert "would raise 0.15 of 3 on average, and 1 without a p-value perhaps more often" in words
    (family,), _ = families(results(("none", "heavy_noise")))
    raised = {one.title for one in findings(family) if one.verdict.leaning != "none"}
    alone = {
        name
        for name in ("gender", "age", "occupation", "years")
        for arm in family.arms
        if (one := verdict(arm, "veilrec", name)) and one.leaning != "none"
    }
    assert raised == alone, "no verdict is hidden by others"


def test_controls_and_the_curve_of_uploads_stand_beside_the_protocol() -> None:
    one = result("none")
    assert "Controls: the same attackers" not in Words(render([("run", one)])).text
    score = {"value": 0.91, "low": 0.89, "high": 0.93}
    row = {"control": "planted", "must_say": "a leak", "passed": True, "attacker": "mlp", "auc": score}
    curve = [{"attribute": "gender", "points": [], "sentence": "gender by kept uploads: one AUC 0.60."}]
    audit = {**one.privacy["veilrec"], "controls": [row], "uploads": curve}
    words = Words(render([("run", replace(one, privacy={"veilrec": audit}))])).text
    assert "planted a leak yes mlp 0.910 [0.890, 0.930]" in words
    assert "gender by kept uploads: one AUC 0.60." in words


def test_a_verdict_of_before_is_marked() -> None:
    now = result("none")
    old = {name: entry for name, entry in now.privacy["veilrec"].items() if name != "rule"}
    runs = [("then", replace(now, privacy={"veilrec": old}))]
    assert "verdict of before" in Words(render(runs)).text
    assert "verdict of before" not in Words(render([("now", now)])).text


def test_what_is_wrong_with_an_audits_input_is_told_beside_its_findings() -> None:
    runs = results(("none", "laplace"), seeds=2)
    assert "Before you believe it" not in Words(render(runs)).text
    name, one = runs[2]
    audit = one.privacy["veilrec"]
    gender = audit["attributes"]["gender"]
    apart = {"left_out": 12.5, "verdict": {**gender["verdict"], "sentence": "Nobody finds gender then."}}
    told = {
        **audit,
        "soundness": [{"kind": "constant", "reads": "updates", "sentence": "Column 3 of 8 says the same."}],
        "attributes": {**audit["attributes"], "gender": {**gender, "without_copies": apart}},
    }
    runs[2] = (name, replace(one, privacy={"veilrec": told}))
    words = Words(render(runs)).text
    assert "Before you believe it: laplace, veilrec: Column 3 of 8 says the same." in words
    assert (
        "gender without 12.5 of those attacked, of whom a copy is known: Nobody finds gender then." in words
    )


def test_an_eraser_that_did_not_come_to_rest_is_told() -> None:
    runs = results(("none",), seeds=1)
    name, one = runs[0]
    line = {
        "name": "AegisFed",
        "rounds": 9,
        "settled": True,
        "change": 1e-5,
        "until": 1e-4,
        "up": 0,
        "down": 8,
    }
    calm = replace(one, traffic={**one.traffic, "erasing": [line]})
    assert "come to rest" not in Words(render([(name, calm)])).text
    restless = [{**line, "settled": False, "change": 0.175}]
    words = Words(render([(name, replace(one, traffic={**one.traffic, "erasing": restless}))])).text
    assert "did not come to rest: after 9 rounds users still moved by 0.175 a round" in words


def test_other_protocols_are_kept_apart() -> None:
    other = result("laplace", 0)
    other = replace(other, utility=replace(other.utility, protocol="all items"))
    text = render([*results(("none",)), ("runs/other", other)])
    words = Words(text).text
    assert "Their numbers do not compare, so there are 2 parts" in words
    charts = embedded(text)["charts"]
    for name, drawings in charts.items():
        labels = {trace.get("name") for drawing in drawings for trace in drawing["data"]}
        assert not {"no defence", "laplace"} <= labels, name


def test_seeds_are_pooled_and_doubles_are_left_out() -> None:
    runs = results(("none",))
    more = {**runs[1][1].settings, "plan": {**runs[1][1].settings["plan"], "workers": 7}}
    runs[1] = (runs[1][0], replace(runs[1][1], settings=more))  # how many workers changes no number
    (family,), left = families([*runs, ("again", runs[0][1])])
    assert len(family.arms) == 1
    assert sorted(family.arms[0].seeds) == [0, 1, 2]
    assert left == ["again is left out: it has the settings and the seed of runs/none/seed=0."]


def test_labels_tell_namesakes_apart() -> None:
    runs = results(("laplace",), seeds=1)
    louder = replace(
        runs[0][1], settings={**runs[0][1].settings, "defence": [{"name": "laplace", "scale": 0.5}]}
    )
    (family,), _ = families([*runs, ("louder", louder)])
    assert [arm.label for arm in family.arms] == [
        "laplace (scale 0.02, clip 0.5, rows touched)",
        "laplace (scale 0.5)",
    ]


def test_a_run_without_attacks_makes_a_page() -> None:
    bare = replace(result(), privacy={}, ledger={}, curves={}, utility_replicates={}, traffic={}, timing={})
    words = Words(render([("runs/bare", bare)])).text
    assert "No attack was run" in words
    assert "no formal guarantee" in words


def test_missing_numbers_are_dashes() -> None:
    thin = result()
    found = json.loads(json.dumps(thin.privacy))
    gender = found["veilrec"]["attributes"]["gender"]
    gender["attackers"][0]["scores"]["auc"] = {"value": None, "low": None, "high": None}
    gender["verdict"] = None
    assert "–" in Words(render([("x", replace(thin, privacy=found))])).text


def test_nothing_to_report_is_an_error() -> None:
    with pytest.raises(BadInput, match="no runs to report"):
        render([])


def test_no_person_is_in_a_page(text: str) -> None:
    longest = max(len(column) for column in _columns(embedded(text)["charts"]))
    assert longest < 100  # nothing has as many entries as there are users


def _columns(value: Any) -> list[list[Any]]:
    if isinstance(value, dict):
        return [found for entry in value.values() for found in _columns(entry)]
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [found for entry in value for found in _columns(entry)]
    return [value] if isinstance(value, list) else []


def test_replicates_stay_out_of_the_page(text: str) -> None:
    assert all(len(column) < RESAMPLES for column in _columns(embedded(text)["charts"]))


def test_nothing_is_loaded_from_elsewhere(text: str) -> None:
    points = Words(text).points
    assert points
    assert all(point.startswith("#") or point == "data:," for point in points)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    assert "default-src &#39;none&#39;" in policy[1]
    assert "unsafe-inline" not in policy[1]
    assert "unsafe-eval" not in policy[1]


@pytest.mark.parametrize("payloads", [PAYLOADS[k::8] for k in range(8)], ids=range(8))
def test_hostile_words_stay_words(payloads: list[str]) -> None:
    """Several on a page, each the name of a run and of all that is in it, and all of them its title."""
    text = page([hostile_run(payload, payload) for payload in payloads], " ".join(payloads))
    assert text.count("<script") == text.count("</script>") == 3
    assert "<!--" not in text
    found = embedded(text)
    assert all(any(payload in row for row in found["numbers"]["rows"]) for payload in payloads)
    drawn = {name: json.dumps(chart) for name, chart in found["charts"].items() if "attackers" in name}
    assert "f0-attackers" in drawn
    assert not [name for name, chart in drawn.items() if re.search(r"<(?!br>)", chart)]


def test_figures_are_what_the_page_can_draw(text: str) -> None:
    """Every kind of trace, symbol, dash and key that is asked for stands in the script that draws."""
    script = (files("veilrec.report") / "charts.js").read_text(encoding="utf-8")
    drawings = [drawing for some in embedded(text)["charts"].values() for drawing in some]
    assert drawings
    traces = [trace for drawing in drawings for trace in drawing["data"]]
    assert {trace["type"] for trace in traces} == {"scatter", "bar", "heatmap"}
    for name in (
        {name for trace in traces for name in trace} - {"legendgroup", "hoverinfo", "orientation"} - HEAT
    ):
        assert re.search(rf"\b{name}\b", script), name
    symbols = {one for trace in traces for one in _listed(trace.get("marker", {}).get("symbol"))}
    for symbol in {one.removesuffix("-open") for one in symbols} - {"circle"}:
        assert re.search(rf'^    "?{symbol}"?: "M', script, re.MULTILINE), symbol
    for drawing in drawings:
        for shape in drawing["layout"]["shapes"]:
            assert shape["line"]["dash"] == "solid" or f"{shape['line']['dash']}:" in script


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value] if value else []


def test_every_chart_has_its_numbers_in_words(runs: list[tuple[str, Result]]) -> None:
    (family,), _ = families(runs)
    chart = frontier(family)
    assert [variant.name for variant in chart.variants] == [
        "worst attribute",
        "gender",
        "age",
        "occupation",
        "years",
    ]
    for number, (table, places) in enumerate(chart.tables):
        assert places == [number]
        assert all(len(row) == len(table.head) for row in table.rows)
        assert "chance" in table.head
        assert "popularity" in table.head


def test_a_page_of_twelve_runs_is_not_too_large(text: str) -> None:
    assert len(text.encode()) < 1_000_000
