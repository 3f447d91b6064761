"""A paper of two methods on the embedded world, whose runs take a second, and one without any run.

And runs of the two that nobody made, for numbers that are known.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.results import attribute, audit, result, spread
from veilrec.result import Result

RECIPE = """
[data]
name = "synthetic"
users = 60
items = 60

[model]
name = "FedMF"
dim = 4

[plan]
rounds = 2
lr = 1.0
evaluate_every = 1
workers = 1

[evaluation]
ks = [10]
select = "hr@10"

[threat]
attributes = ["gender"]
known = 0.3
by_part = true
membership = false
resamples = 100
permutations = 99

[[attack]]
name = "AttributeInference"
classifiers = ["knn"]
"""

PAPER = """
title = "A tiny paper"
reference = "Nobody, nowhere, 2020."
metric = "hr@10"
beside = ["auc"]
notes = ["All of it is made up."]

[reported]
macro_f1 = { metric = "f1" }
"hr@10" = { metric = "hit", k = "10" }

[datasets.synthetic]
label = "Synthetic"

[recipes.mf]
file = "mf.toml"
on = { synthetic = ["plan.cohort=0.9"] }

[attributes.gender]
label = "Gender"

[audits.custom]
label = "ζ = 0.3"

[attackers."updates/knn"]
label = "KNN"

[parts.item]
label = "items"

[methods.plain]
label = "Plain"
recipe = "mf"

[methods.noisy]
label = "Noisy"
recipe = "mf"
set = ["defence.0.name=laplace", "defence.0.scale=0.1"]
note = "made up as well."

[methods.broken]
label = "Broken"
recipe = "mf"
set = ["defence.0.name=nothing"]

[tables.table1]
title = "Two methods"
methods = ["plain", "noisy"]
attributes = ["gender"]
audits = ["custom"]
attackers = ["updates/knn"]
parts = ["item"]
claims = [
    { less = "noisy", than = "plain", attribute = "gender" },
    { more = "plain", than = "floor", attribute = "gender" },
    { more = "plain", than = "popularity", by = "hr@10" },
    { alike = "noisy", than = "plain", by = "hr@10" },
]
notes = ["One table."]

[tables.table2]
title = "With one that cannot run"
methods = ["plain"]
extra = ["broken"]
utility = true
reported = ["table1"]
"""

REPORTED = """table,dataset,method,attribute,attacker,metric,k,setting,value
table1,Synthetic,Plain,Gender,KNN,f1,,ζ = 0.3,0.700
table1,Synthetic,Noisy,Gender,KNN,f1,,ζ = 0.3,0.500
table1,Synthetic,Plain,,,hit,10,,0.300
"""


def write(folder: Path, paper: str = PAPER, reported: str = REPORTED) -> Path:
    """The files of the paper in a folder of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mf.toml").write_text(RECIPE, encoding="utf-8")
    (folder / "paper.toml").write_text(paper, encoding="utf-8")
    (folder / "reported.csv").write_text(reported, encoding="utf-8")
    return folder


def attacked(seed: int, value: float, **changes: Any) -> Result:
    """A run in which one attacker reached so much macro-F1, ± 0.02 over users."""
    scores = {
        "macro_f1": {"value": value, "low": value - 0.02, "high": value + 0.02},
        "auc": {"value": value + 0.1, "low": value, "high": value + 0.2},
    }
    entry = attribute(value + 0.1, spread(value + 0.1))
    entry["attackers"] = [{"name": "updates/knn", "scores": scores, **changes}]
    entry["parts"] = [{"part": "item", "classifier": "knn", "macro_f1": scores["macro_f1"]}]
    entry["verdict"] |= {"attacker": "updates/knn"}
    base = result(None, seed)
    useful = replace(base.utility, test={"hr@10": 0.3}, floor={"hr@10": 0.2}, select="hr@10")
    return replace(
        base,
        utility=useful,
        utility_replicates={"hr@10": spread(0.3)},
        privacy={"custom": audit({"gender": entry})},
    )


def ranked(run: Result, ndcg: float) -> Result:
    """The same run by a second metric as well."""
    useful = run.utility
    both = replace(
        useful, test={**useful.test, "ndcg@10": ndcg}, floor={**useful.floor, "ndcg@10": ndcg - 0.05}
    )
    return replace(
        run, utility=both, utility_replicates={**run.utility_replicates, "ndcg@10": spread(ndcg, seed=2)}
    )


def shelved(out: Path, seeds: int = 3) -> Path:
    """A folder of finished runs: plain leaks 0.60, noisy 0.50."""
    for method, value in (("plain", 0.60), ("noisy", 0.50)):
        for seed in range(seeds):
            folder = out / "synthetic" / method / f"seed={seed}"
            folder.mkdir(parents=True)
            attacked(seed, value + 0.001 * seed).save(folder)
    return out
