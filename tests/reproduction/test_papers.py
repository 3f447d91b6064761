"""The papers that come with veilrec: every recipe is sound and runs, every reported number has its place."""

from __future__ import annotations

import json
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.datasets.test_movielens import REAL, needs_1m
from veilrec.lab.lab import Audit
from veilrec.lab.presets import preset
from veilrec.recipe import Recipe
from veilrec.reproduction.cells import cells_of
from veilrec.reproduction.claims import sides
from veilrec.reproduction.contents import Table
from veilrec.reproduction.numbers import WORST, Quantity
from veilrec.reproduction.paper import FLOOR, POPULARITY, Paper, papers
from veilrec.reproduction.tables import reported

KNOWN = {name: Paper.load(name) for name in papers()}
METHODS = [(name, method) for name, paper in KNOWN.items() for method in paper.methods]
SHAPES = {  # of the printed tables of APM: how many numbers each has
    "fig4": 4,
    "table2": 56,
    "table3": 6,
    "table4": 112,
    "table5": 24,
    "table6": 36,
}
RANKED = {  # what selects, and how many untouched items stand beside the test item: 0 for all of them
    "apm": ("hr@20", {"ml-100k": 0, "ml-1m": 0}),
    "pard": ("ndcg@10", {"ml-100k": 99, "ml-1m": 999, "taobao": 999, "renttherunway": 999}),
    "aegis": ("hr@10", dict.fromkeys(("ml-100k", "ml-1m", "lastfm-1k", "renttherunway"), 99)),
    "fedau2": (
        "hr@10",
        dict.fromkeys(("ml-100k", "ml-1m", "lastfm-360k", "ml-100k-all", "ml-1m-all", "lastfm-1k"), 99),
    ),
}
IN_SILOS = {"aegis": ['threat.grants=["user_vectors"]', "attack.0.reads=embeddings"]}  # uploads are of many
SMALL = ["data.name=synthetic", "data.users=60", "data.items=50", "plan.rounds=2", "plan.workers=1"]
UNATTACKED = [
    "threat.also=[]",
    "threat.own=true",
    "threat.by_part=false",
    "threat.membership=false",
    "threat.resamples=100",
    "threat.permutations=99",
    "attack.0.name=AttributeInference",
    'attack.0.classifiers=["majority"]',
]
# What holds for the paper's own data only, or takes long:
AWAY = (
    "eraser.0.attributes=",
    "data.name=",
    "data.ages=",
    "defence.0.clients=",
    "threat.attributes=",
    "threat.along=",
)


def small(paper: Paper, method: str, *more: str) -> Recipe:
    """A method on a small world, for two rounds; where there is a warm-up, it is the first of them."""
    own = [text for text in paper.changes(method, next(iter(paper.datasets))) if not text.startswith(AWAY)]
    sets = [*SMALL, "evaluation.candidates=0", *(["defence.0.warm_up=1"] if _warms(paper, method) else [])]
    sets += ["defence.0.pretrain=1"] if any(text.startswith("defence.0.pretrain=") for text in own) else []
    return Recipe.load(paper.recipe(method), [*own, *sets, *more], seed=0)


def _warms(paper: Paper, method: str) -> bool:
    """Whether the method's recipe has a warm-up, which is longer than two rounds."""
    return "warm_up" in paper.recipe(method).read_text()


def kind(name: str, method: str) -> tuple[str, ...]:
    """What a method is made of: its recipe, and the model, protocol and defences that it names beside."""
    paper = KNOWN[name]
    changes = paper.changes(method, next(iter(paper.datasets)))
    return (name, paper.recipe(method).name, *(text for text in changes if ".name=" in text))


def one_of_a_kind() -> list[Any]:
    """Every method; those made of the same as an earlier one, with other numbers, are slow."""
    seen = set[tuple[str, ...]]()
    found = []
    for name, method in METHODS:
        known = kind(name, method) in seen
        found.append(pytest.param(name, method, marks=pytest.mark.slow if known else ()))
        seen.add(kind(name, method))
    return found


def one_of_a_recipe() -> list[Any]:
    """Every method; those on the recipe of an earlier one are slow, since contract tests train entries."""
    first = {(name, KNOWN[name].recipe(method)): method for name, method in reversed(METHODS)}
    return [
        pytest.param(
            name, method, marks=() if first[name, KNOWN[name].recipe(method)] == method else pytest.mark.slow
        )
        for name, method in METHODS
    ]


def test_apm_is_there() -> None:
    assert "apm" in KNOWN
    assert set(KNOWN["apm"].tables) == {
        *(f"fig{number}" for number in (2, 4, 5, 6, 7)),
        *(f"table{number}" for number in (2, 3, 4, 5, 6)),
        "columns",
    }


def test_pard_is_there() -> None:
    theirs = {"fig3", "fig6", "fig7", "table3", "table4", "table5"}
    assert set(KNOWN["pard"].tables) == theirs | {"known", "rank", "worst"}
    scores = {attribute: KNOWN["pard"].score_of(attribute) for attribute in KNOWN["pard"].attributes}
    assert scores == {"age": "micro_f1", "gender": "auc", "occupation": "micro_f1", "body type": "micro_f1"}


@pytest.mark.parametrize(("name", "method"), one_of_a_recipe())
def test_every_method_runs_two_rounds(name: str, method: str) -> None:
    result = small(KNOWN[name], method, *UNATTACKED, *IN_SILOS.get(name, ())).experiment().run()
    assert result.rounds == 2
    assert set(KNOWN[name].metrics) <= set(result.utility.test)
    assert set(KNOWN[name].metrics) <= set(result.utility_replicates)


@pytest.mark.parametrize(("name", "method"), METHODS)
def test_every_method_is_attacked_and_ranked_as_its_tables_ask(name: str, method: str) -> None:
    paper, (select, candidates) = KNOWN[name], RANKED[name]
    first = next(iter(paper.datasets))
    mine, values = asked_of(paper, method, first)
    assert values["evaluation"]["select"] == select
    assert values["evaluation"]["candidates"] == candidates[first]
    audits = {a for key in mine for a in audits_of(paper, key, method)}
    assert audits <= set(values["threat"]["also"])


@pytest.mark.slow  # the first dataset of each method is quick
@pytest.mark.parametrize(("name", "method"), one_of_a_kind())
def test_so_it_is_on_its_other_datasets(name: str, method: str) -> None:
    paper, (select, candidates) = KNOWN[name], RANKED[name]
    assert set(candidates) == set(paper.datasets)
    for dataset in list(paper.datasets)[1:]:
        _, values = asked_of(paper, method, dataset)
        assert values["evaluation"]["select"] == select
        assert values["evaluation"]["candidates"] == candidates[dataset]


def asked_of(paper: Paper, method: str, dataset: str) -> tuple[dict[str, Table], dict[str, Any]]:
    """The tables that show a method on a dataset, and its settings there, which ask for what they show."""
    mine = {key: t for key, t in paper.tables.items() if method in t.rows and t.on(dataset)}
    values = cells(paper.name, dataset).get(method) or settings_of(paper, method, dataset)
    asked = {a for table in mine.values() for a in table.attributes if paper.datasets[dataset].has(a)}
    assert asked <= set(values["threat"]["attributes"])
    return mine, values


def audits_of(paper: Paper, name: str, method: str) -> list[str]:
    """The audits that a table needs of a method; Table V of PARD trains it for each η, and needs that one.

    An adversary's gradients are attacked where there is an adversary.
    """
    table = paper.tables[name]
    if paper.name == "fedau2" and not paper.methods[method].recipe.endswith("-fedau2"):
        return [audit for audit in table.audits if audit != "fedau2-gradients"]
    if (paper.name, name) != ("pard", "table5") or not _warms(paper, method):
        return list(table.audits)
    printed = [
        audit
        for audit in table.audits
        if reported(paper, name, "ml-100k", method, Quantity("auc", "gender", audit, table.attackers[0]))
    ]
    assert len(printed) == 1
    return printed


@pytest.mark.parametrize(("name", "select"), [("apm", "hr@20"), ("pard", "recall@10"), ("fedau2", "hr@10")])
def test_papers_are_ranked_by_their_own_metric(name: str, select: str) -> None:
    assert KNOWN[name].metric == select
    assert KNOWN[name].metrics_beside == {"apm": (), "pard": ("ndcg@10",), "fedau2": ("ndcg@10",)}[name]


@pytest.mark.parametrize("file", sorted(Path(f) for p in KNOWN.values() for f in p.folder.glob("fed*.toml")))
def test_a_recipe_stands_by_itself(file: Path) -> None:
    values = Recipe.load(file, ["data.name=synthetic"]).values
    assert values["model"]["name"].casefold() != "fedmf" or file.stem == "fedmf"


def attackers_of(audit: Audit) -> set[str]:
    """What results call the attackers of an audit, and the one that its verdict goes by."""
    return {name or entry for entry, attack in audit.attacks.items() for name in attack.unfold()} | {WORST}


def settings_of(paper: Paper, method: str, dataset: str) -> dict[str, Any]:
    """What a method is run with on a dataset that no table of its own has."""
    changes = paper.changes(method, dataset)
    return Recipe.load(paper.recipe(method), changes, seed=0, has_data=False).values


@cache
def cells(name: str, dataset: str) -> dict[str, dict[str, Any]]:
    """What each method of a paper on a dataset is run with; the dataset need not be there."""
    paper = KNOWN[name]
    found = cells_of(paper, paper.chosen(["all"]), [dataset], 1, Path())
    return {cell.method: cell.recipe(has_data=False).values for cell in found}


@pytest.mark.parametrize("name", KNOWN)
def test_every_claim_is_about_what_its_methods_are_attacked_by(name: str) -> None:
    paper = KNOWN[name]
    resolved = {dataset: cells(name, dataset) for dataset in paper.datasets}
    for key, table in paper.tables.items():
        for claim in table.claims:
            for dataset in claim.datasets or table.datasets or paper.datasets:
                for who, what in zip((claim.who, claim.than), sides(paper, table, claim), strict=True):
                    if not what.attribute or who in (FLOOR, POPULARITY):
                        continue
                    threat, where = resolved[dataset][who]["threat"], (key, dataset, claim)
                    assert what.audit in threat["also"], where
                    assert what.attribute in threat["attributes"], where
                    audit = preset(what.audit)
                    assert what.part or what.attacker in attackers_of(audit), where
                    assert audit.threat.by_part or not what.part, where


def test_movielens_1m_has_the_three_age_groups_of_the_paper() -> None:
    found = cells("apm", "ml-1m")
    assert len(found) > 10
    assert {tuple(values["data"]["ages"]) for values in found.values()} == {(35, 45)}
    assert found["pure"]["threat"]["also"] == ["apm", "apm@0.2"]


@needs_1m
def test_the_age_groups_are_an_option_of_the_dataset() -> None:
    paper = KNOWN["apm"]
    cell = cells_of(paper, paper.chosen(["table2"]), ["ml-1m"], 1, Path())[0]
    assert tuple(cell.recipe(REAL).values["data"]["ages"]) == (35, 45)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "method"), [("apm", "pure"), ("pard", "ncf-pard")])
def test_results_are_named_as_the_tables_name_them(name: str, method: str) -> None:
    """Audits, attackers and parts of a real attack are those that ``paper.toml`` asks for."""
    paper = KNOWN[name]
    quick = ["threat.resamples=100", "threat.permutations=99", "model.dim=4", "model.head=[4]"]
    protocols = dict.fromkeys(audit.partition("@")[0] for audit in paper.audits)  # shares change no names
    also = f"threat.also={json.dumps(list(protocols))}"
    result = small(paper, method, *quick, also, 'threat.attributes=["age", "gender"]').experiment().run()
    assert set(result.privacy) == set(protocols)
    for table in (table for table in paper.tables.values() if method in table.rows):
        shown = [a for a in table.attributes if a in ("age", "gender")]
        assert shown == list(table.attributes) or name != "apm"
        asked, met = set(table.attackers) - {WORST}, set[str]()
        for audit, attribute in product(table.audits, shown):
            entry = result.privacy[audit.partition("@")[0]]["attributes"][attribute]
            there = {one["name"] for one in entry["attackers"]}
            met |= there
            assert asked & there or WORST in table.attackers  # no audit is shown without anybody
            assert set(table.parts) <= {one["part"] for one in entry["parts"]}
            assert all({"auc", "macro_f1"} <= one.keys() for one in entry["parts"])
            assert all(paper.score_of(attribute) in one["replicates"] for one in entry["attackers"])
        assert asked <= met or not shown


# ---- what the paper reports


def test_reported_numbers_have_the_shapes_of_the_printed_tables() -> None:
    figures = KNOWN["apm"].figures
    assert {table: sum(row["table"] == table for row in figures) for table in SHAPES} == SHAPES
    assert len(figures) == sum(SHAPES.values())
    assert all(0 < float(row["value"]) < 1 for row in figures)


@pytest.mark.parametrize("name", ["table2", "table3", "table4", "table5", "table6"])
def test_every_cell_of_a_printed_table_is_found(name: str) -> None:
    paper = KNOWN["apm"]
    table, found = paper.tables[name], 0
    for dataset in table.datasets:
        for method in table.methods:
            whats = [
                Quantity(paper.score, attribute, audit, attacker)
                for attribute in table.attributes
                for audit in table.audits
                for attacker in table.attackers
            ]
            whats += [Quantity(paper.metric)] if table.utility else []
            values = [reported(paper, name, dataset, method, what) for what in whats]
            assert None not in values, (dataset, method)
            found += len(values)
    assert found == SHAPES[name]


def test_known_cells() -> None:
    paper = KNOWN["apm"]
    aia = Quantity("macro_f1", "gender", "apm", "updates/mlp-apm")
    assert reported(paper, "table2", "ml-100k", "pure", aia) == 0.677
    assert reported(paper, "table2", "ml-1m", "ours", aia._replace(audit="apm@0.2")) == 0.603
    assert reported(paper, "table3", "ml-100k", "fixrec-max", Quantity("hr@20")) == 0.067
    assert reported(paper, "table5", "ml-100k", "ours", aia._replace(audit="apm-four@0.3")) == 0.585
    assert reported(paper, "table6", "ml-1m", "ncf-ldp", aia) == 0.675
    assert reported(paper, "fig4", "ml-100k", "pure", aia) == 0.677
    assert reported(paper, "fig4", "ml-100k", "pure", aia._replace(attacker="", part="user")) is None


def test_every_number_that_pard_prints_is_found_once() -> None:
    """All but its Random Attack, which stands in a note; a row that no table finds would be lost."""
    paper = KNOWN["pard"]
    printed = [row for row in paper.figures if row["method"] != "Random Attack"]
    assert len(paper.figures) - len(printed) == 8
    found: list[tuple[str, float]] = []
    for name in ("table3", "table4", "table5"):
        table = paper.tables[name]
        for dataset, method in product(table.datasets, table.methods):
            whats = [
                Quantity(paper.score_of(attribute), attribute, audit, attacker)
                for attribute in table.attributes
                for audit in table.audits
                for attacker in table.attackers
            ]
            whats += [Quantity(metric) for metric in paper.metrics] if table.utility else []
            values = [reported(paper, name, dataset, method, what) for what in whats]
            found += [(name, value) for value in values if value is not None]
    assert sorted(found) == sorted((row["table"], float(row["value"])) for row in printed)
    assert all(0 < value < 1 for _, value in found)


def test_known_cells_of_pard() -> None:
    paper = KNOWN["pard"]
    gender = Quantity("auc", "gender", "pard", "parameters/mlp-pard")
    age = gender._replace(score="micro_f1", attribute="age")
    assert reported(paper, "table3", "ml-100k", "ncf-fedavg", gender) == 0.7348
    assert reported(paper, "table3", "ml-100k", "ncf-fedavg", age) == 0.6371
    assert reported(paper, "table3", "ml-100k", "ncf-fedavg", Quantity("ndcg@10")) == 0.3478
    assert reported(paper, "table3", "taobao", "ncf-fedavg", gender) is None
    assert reported(paper, "table3", "renttherunway", "ncf-fedavg", Quantity("recall@10")) is None
    assert reported(paper, "table5", "ml-100k", "ncf-pard-eta-1", gender._replace(audit="pard@0.1")) == 0.6391
    assert reported(paper, "table5", "ml-100k", "ncf-pard", gender) == 0.5777
    assert reported(paper, "table5", "ml-100k", "ncf-pard", gender._replace(audit="pard@0.3")) is None
    halves = age._replace(audit="pard-halves")
    assert reported(paper, "fig7", "ml-100k", "ncf-pard", halves) == reported(
        paper, "table3", "ml-100k", "ncf-pard", age
    )
    assert (
        reported(paper, "fig7", "ml-100k", "ncf-pard", halves._replace(attacker="withheld/mlp-pard")) is None
    )
