"""papers/fedau2: every printed number, every row as the paper has it, both forms of the data told apart."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.reproduction.test_papers import small
from veilrec.base.steps import rate_of
from veilrec.reproduction.cells import cells_of
from veilrec.reproduction.numbers import WORST, Quantity, value_of
from veilrec.reproduction.paper import Paper
from veilrec.reproduction.tables import attacks, reported

PAPER = Paper.load("fedau2")
PRINTED = ("ml-100k", "ml-1m", "lastfm-360k")
OURS = ("ml-100k-all", "ml-1m-all", "lastfm-1k")
MODELS = {"ncf": "FedNCF", "vae": "FedVAE", "rap": "FedRAP"}
MLP = Quantity("balanced_accuracy", "gender", "fedau2", "embeddings/mlp-fedau2")


@cache
def values(dataset: str) -> dict[str, dict[str, Any]]:
    """What each method on a dataset is run with; the dataset need not be there."""
    found = cells_of(PAPER, PAPER.chosen(["all"]), [dataset], 1, Path())
    return {cell.method: cell.recipe(has_data=False).values for cell in found}


def test_the_tables_of_the_paper_and_ours() -> None:
    theirs = ["table1", "fig3", "fig4a", "fig4b", "fig4c", "appendixC", "overhead"]
    ours = ["vectors", "residuals", "softmax", "uploads", "variance", "slower", "schedule", "worst"]
    assert list(PAPER.tables) == [*theirs, *ours]


def test_all_216_numbers_of_table_1_are_there() -> None:
    rows = [row for row in PAPER.figures if row["table"] == "table1"]
    places = {(r["dataset"], r["base_model"], r["method"], r["row"], r["metric"]) for r in rows}
    assert len(rows) == len(places) == 3 * 2 * 3 * 3 * 4
    assert all(len(row["value"]) == 6 and 0 < float(row["value"]) < 1 for row in rows)
    assert {row["row"] for row in rows if row["attribute"]} == {"Gender", "Age"}
    assert all(row["attribute"] in (row["row"], "") for row in rows)
    assert len(PAPER.figures) - len(rows) == 3  # figure 4a


def test_hits_are_multiples_of_the_users_of_the_subsets() -> None:
    """Of 18 misread numbers of ML-100K one would pass, of ML-1M one of three."""
    users = {"ML-100K": 546, "ML-1M": 3418, "LastFM": 6116}
    for row in (row for row in PAPER.figures if row["metric"] == "hit"):
        n, value = users[row["dataset"]], float(row["value"])
        assert abs(round(value * n) / n - value) <= 0.5e-4 + 1e-9, row


def test_one_model_serves_both_attributes_where_nothing_is_unlearned() -> None:
    for model, method, metric in product(MODELS.values(), ("Original", "APM"), ("hit", "ndcg")):
        for dataset in ("ML-100K", "ML-1M", "LastFM"):
            some = {
                row["value"]
                for row in PAPER.figures
                if (row["dataset"], row["base_model"], row["method"], row["metric"])
                == (dataset, model, method, metric)
            }
            assert len(some) == 1


def test_every_printed_number_is_found_in_its_table() -> None:
    found: list[float] = []
    for dataset, model in product(PRINTED, MODELS):
        for method in ("original", "apm", "fedau2-gender", "fedau2-age"):
            whats = [
                MLP._replace(score=s, attribute=a)
                for s in ("balanced_accuracy", "macro_f1")
                for a in PAPER.attributes
            ]
            whats += map(Quantity, PAPER.metrics)
            some = [reported(PAPER, "table1", dataset, f"{model}-{method}", what) for what in whats]
            mine = [value for value in some if value is not None]
            assert len(mine) == (4 if "fedau2" in method else 6)
            found += mine
    once = [float(row["value"]) for row in PAPER.figures if row["table"] == "table1"]
    again = [
        float(r["value"])
        for r in PAPER.figures
        if r["row"] == "Age" and not r["attribute"] and r["method"] != "FedAU²"
    ]
    for value in again:  # what is printed in both rows is found once
        once.remove(value)
    assert sorted(found) == sorted(once)


def test_known_cells() -> None:
    assert reported(PAPER, "table1", "ml-100k", "ncf-original", Quantity("hr@10")) == 0.6392
    assert reported(PAPER, "table1", "ml-1m", "vae-fedau2-gender", Quantity("ndcg@10")) == 0.3994
    assert reported(PAPER, "table1", "ml-1m", "vae-fedau2-age", Quantity("ndcg@10")) == 0.4017
    assert reported(PAPER, "table1", "lastfm-360k", "rap-apm", MLP) == 0.6079
    assert reported(PAPER, "table1", "ml-100k", "vae-fedau2-gender", MLP._replace(score="macro_f1")) == 0.4113
    assert reported(PAPER, "table1", "ml-100k", "vae-fedau2-gender", MLP._replace(attribute="age")) is None
    dlg = Quantity("micro_f1", "gender", "fedau2-gradients", "DLG")
    heads = [("vae-head-plain", 0.90), ("vae-head-vae", 0.89), ("vae-fedau2-gender", 0.58)]
    for method, value in heads:
        assert reported(PAPER, "fig4a", "ml-1m", method, dlg) == value
        assert reported(PAPER, "fig4a", "ml-100k", method, dlg) is None
        assert reported(PAPER, "fig4a", "ml-1m", method, dlg._replace(attacker="iDLG")) is None
    assert reported(PAPER, "fig4a", "ml-1m", "ncf-head-plain", dlg) is None


@pytest.mark.parametrize("dataset", OURS)
def test_nothing_is_reported_of_data_that_the_paper_does_not_have(dataset: str) -> None:
    for method in PAPER.tables["table1"].methods:
        for what in (MLP, MLP._replace(attribute="age"), *map(Quantity, PAPER.metrics)):
            assert reported(PAPER, "table1", dataset, method, what) is None


@pytest.mark.slow
@pytest.mark.parametrize("dataset", [*PRINTED, *OURS])
def test_the_papers_data_is_balanced_and_the_full_data_is_not(dataset: str) -> None:
    for method, found in values(dataset).items():
        data = found["data"]
        assert data["name"] == dataset.removesuffix("-all")
        assert data["balance"] == ("" if dataset.endswith("-all") else "gender"), method
        if dataset.startswith("ml-"):
            assert list(data["ages"]) == ([27, 37] if "100k" in dataset else [25, 35])


def test_training_is_that_of_the_paper() -> None:
    for method, found in values("ml-100k").items():
        plan, protocol = found["plan"], found["protocol"]
        assert (plan["cohort"], plan["epochs"]) == (0.1, 1), method
        assert (protocol["sends"], protocol["server"]) == ("gradients", "adam")
        assert protocol["server_lr"]["default"] == 0.001
        assert list(found["evaluation"]["ks"]) == [5, 10, 15, 20]
        curves = method in PAPER.tables["fig3"].rows  # nothing is held out for validation but for curves
        assert found["evaluation"]["validation"] == curves
        assert not found["threat"]["own"]


@pytest.mark.parametrize("dataset", PAPER.datasets)
def test_an_adversary_never_slows_down(dataset: str) -> None:
    """Whatever the rates of the model do: it is to keep up with those who flee from it."""
    found = {m: one for m, one in values(dataset).items() if one["defence"][0]["name"] == "FedAU2"}
    assert found
    for method, one in found.items():
        parts = [f"adversary_{attribute}" for attribute in one["defence"][0]["attributes"]]
        assert not any(rate_of(one["protocol"]["server_halves"], part) for part in parts), method


FIG4 = ("fig4a", "fig4b", "fig4c")


def test_methods_differ_in_what_their_figures_show() -> None:
    found = {method: one["defence"][0] for method, one in values("ml-1m").items() if one.get("defence")}
    small = {method: one["defence"][0] for method, one in values("ml-100k").items() if one.get("defence")}
    for model, rounds in (("ncf", 100), ("vae", 50), ("rap", 10)):
        assert small[f"{model}-fedau2-gender"].get("trigger", "sut") == "sut"
        by_eq_6 = found[f"{model}-fedau2-gender"].get("trigger", "sut") == "continuous"
        assert by_eq_6 == (model == "vae")  # on ML-1M alone
        assert found[f"{model}-sut"].get("trigger", "sut") == "sut"
        assert found[f"{model}-global"]["trigger"] == "global"
        pretrain = found[f"{model}-pretrain"]
        assert (pretrain["trigger"], pretrain["pretrain"]) == ("pretrain", rounds)
        heads = [
            found[f"{model}-{m}"].get("head", "dsvae") for m in ("head-plain", "head-vae", "fedau2-gender")
        ]
        assert heads == ["plain", "vae", "dsvae"]
    sweep = [found[m].get("variance", 2.0) for m in PAPER.tables["fig4c"].methods]
    assert sweep == [0.5, 1.0, 2.0, 4.0]
    for model in MODELS:  # within a figure nothing but its own setting may differ
        mine = [one for method, one in found.items() if method.startswith(model) and "strength" in one]
        mine = [one for one in mine if one is not found["rap-strong-gender"]]  # which is there to be stronger
        assert len({one["strength"] for one in mine if list(one["attributes"]) == ["gender"]}) == 1


@pytest.mark.parametrize("name", FIG4)
def test_rows_of_figure_4_differ_in_the_head_alone(name: str) -> None:
    rows = [deepcopy(values("ml-1m")[m]) for m in PAPER.tables[name].methods if m.startswith("vae")]
    assert len(rows) in (3, 4)
    own = [(row["defence"][0].pop("head", "dsvae"), row["defence"][0].pop("variance", 2.0)) for row in rows]
    assert len(set(own)) == len(rows)
    for row in rows:
        for part in ("plan", "protocol", "defence", "model", "evaluation", "data"):
            assert row[part] == rows[0][part], part


def test_costs_are_held_against_a_row_of_the_same_table() -> None:
    rows = PAPER.tables["overhead"].rows
    for method in rows:
        model = method.partition("-")[0]
        assert PAPER.methods[method].against == ("" if method.endswith("original") else f"{model}-original")
    assert {f"{model}-original" for model in MODELS} <= set(rows)


def test_curves_are_attacked_along() -> None:
    found = values("ml-1m")
    assert {found[method]["threat"]["along"] for method in PAPER.tables["fig3"].methods} == {"fedau2"}
    assert found["vae-original"]["threat"]["along"] == ""


@pytest.mark.slow
def test_results_hold_what_the_tables_ask_for() -> None:
    """Every number of every attack, components and curves among them, under the names of ``paper.toml``."""
    method = "vae-fedau2-gender"
    quick = ["threat.resamples=100", "threat.permutations=99", "model.dim=4", "model.hidden=4"]
    also = 'threat.also=["fedau2", "fedau2-gradients", "dlg", "veilrec"]'
    more = [also, "threat.along=fedau2", 'threat.attributes=["gender"]', "defence.0.hidden=4"]
    more.append("evaluation.validation=true")
    result = small(PAPER, method, *quick, *more).experiment().run()
    asked, same = 0, {method, "vae-head-dsvae", "vae-variance-2"}  # rows of one defence
    for table in (table for table in PAPER.tables.values() if same & set(table.rows)):
        for audit, attacker in product(table.audits, table.attackers):
            for score in PAPER.scores_of(table, "gender"):
                if attacks(audit, attacker):
                    assert value_of(result, Quantity(score, "gender", audit, attacker)) is not None
                    asked += 1
        assert set(table.curves) <= set(result.curves)
        assert set(PAPER.metrics_of(table)) <= set(result.utility.test)
    assert asked > 10
    assert attacks("veilrec", WORST)
