"""A paper of two methods on the embedded world, whose runs take a second, and one without any run."""

from __future__ import annotations

from pathlib import Path

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
