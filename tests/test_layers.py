"""Imports point down the line, never up, and other people's packages stay behind their fences.

The tables are the architecture. A new module gets a place in `LAYERS`; a new dependency gets one in `FENCES`.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "veilrec"
FILES = sorted(PACKAGE.rglob("*.py"))

LAYERS = [  # each may import only from the rows above it
    {"errors"},
    {"disk", "keys", "params", "tables", "toml"},
    {"heap", "interactions", "mechanism", "metrics", "scratch", "steps", "tensors"},
    {"clients", "shelf"},
    {"features", "model", "plan", "portion", "store"},
    {"keepsakes", "uploads", "wire", "workers"},
    {"protocol", "traffic", "transcript"},
    {"attack", "defence"},
    {"disclosure", "threat"},
    {"attacks", "datasets", "defences", "models", "protocols"},
    {"evaluation", "helping"},
    {"local", "refusals", "together"},
    {"serving"},
    {"rounds"},
    {"plugins", "probe", "result", "settings"},
    {"catalogue", "comparison"},
    {"runs"},
    {"experiment"},
    {"cells", "recipe"},
    {"node"},
    {"deploy", "report", "reproduction"},
    {"__init__"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
CATALOGUES = {"attacks", "datasets", "defences", "models", "protocols"}
PEOPLE = {  # what the devices hold
    *("clients", "heap", "interactions", "keepsakes", "portion", "protocol", "shelf", "store")
}

BLIND = {  # beyond the order of the rows: what a module must not know, although it lies below
    "attack": PEOPLE,
    "attacks": PEOPLE,
    "threat": PEOPLE,
    "deploy": CATALOGUES,
    "evaluation": CATALOGUES,
    "helping": CATALOGUES,
    "local": CATALOGUES,
    "node": CATALOGUES,
    "report": set(LEVEL) - {"comparison", "errors", "result"},
    "rounds": CATALOGUES,
    "serving": CATALOGUES,
    "together": CATALOGUES,
}

LINE = {name for level in LAYERS[: LEVEL["rounds"] + 1] for name in level} - {"datasets", "errors"}
STORED = {"tensors", "transcript", "wire"}  # where the line meets bytes
EDGES = {"cli", "datasets", "experiment", "recipe", "report", "result", "runs"}
FENCES = {  # where a package may be imported: a module or folder of ours, or one file
    "torch": set(LEVEL) - {"errors", "report"},
    "numpy": set(LEVEL) - {"errors"},
    "dp_accounting": EDGES,
    "flwr": {"deploy"},
    "jinja2": {"report"},
    "model2vec": {"models/morec.py"},
    "numba": {"defences/compiled.py"},
    "pandas": EDGES,
    "platformdirs": EDGES,
    "plotly": {"report"},
    "pooch": {"datasets"},
    "pyarrow": {"datasets"},
    "rich": {"cli"},
    "safetensors": {"datasets", "tensors", "transcript", "wire"},
    "scipy": EDGES,
    "sklearn": {"attacks/classifiers.py", "runs/user_map.py"},
    "threadpoolctl": {"attacks/jobs.py"},
    "transformers": {"models/morec.py"},
    "typer": {"cli"},
    "xgboost": {"attacks/classifiers.py"},
}


def home(place: str) -> str:
    """The module or folder of ours that a file belongs to: ``defences/apm.py`` → ``defences``."""
    return place.split("/")[0].removesuffix(".py")


def typing_only(tree: ast.Module) -> set[ast.AST]:
    """Everything under ``if TYPE_CHECKING:``, which never runs."""
    return {
        node
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
        for statement in block.body
        for node in ast.walk(statement)
    }


def imported(node: ast.AST, place: str) -> list[str]:
    """The dotted names that one node imports, whatever the form; what is relative is resolved."""
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
        case ast.ImportFrom():
            folder = ["veilrec", *place.split("/")[:-1]]
            above = folder[: len(folder) - node.level + 1] if node.level else []
            module = ".".join(above + ([node.module] if node.module else []))
            return [f"{module}.{alias.name}" for alias in node.names]
        case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]):
            if ast.unparse(function).split(".")[-1] in {"import_module", "__import__"}:
                return [name]
    return []


def imports(place: str, source: str) -> set[str]:
    """The dotted names that a file needs at run time, at its top or inside its functions."""
    tree = ast.parse(source)
    skipped = typing_only(tree)
    return {name for node in ast.walk(tree) if node not in skipped for name in imported(node, place)}


def ours(name: str) -> str:
    """The module of ours behind a dotted name; what only the package itself offers is its ``__init__``."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and (parts[1] in LEVEL or len(parts) > 2) else "__init__"


def faults(place: str, source: str) -> list[str]:
    """What a file at `place` imports and must not."""
    here, found = home(place), []
    if here not in LEVEL:
        return [f"{here} has no row in LAYERS: give it the lowest one it can stand on"]
    for name in sorted(imports(place, source)):
        top = name.split(".")[0]
        if top == "veilrec":
            there = ours(name)
            if there == here or name == "veilrec.__version__":
                continue
            if LEVEL.get(there, len(LAYERS)) >= LEVEL[here]:
                found.append(f"{here} must not import {there}: it is not below")
            elif there in BLIND.get(here, ()):
                found.append(f"{here} must not know {there}")
        elif top not in sys.stdlib_module_names and not {here, place} & FENCES.get(top, set()):
            found.append(f"{place} must not import {top}: see FENCES")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    assert faults(path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8")) == []


def test_the_package_was_found() -> None:
    assert {"keys", "rounds", "models"} <= {home(path.relative_to(PACKAGE).as_posix()) for path in FILES}


@pytest.mark.parametrize("package", sorted(set(FENCES) - {"numpy", "torch"}))
def test_the_line_has_only_torch_and_numpy(package: str) -> None:
    assert FENCES[package] & LINE == (STORED if package == "safetensors" else set())


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("keys.py", "from veilrec.params import Params"),
        ("keys.py", "import veilrec.rounds"),
        ("keys.py", "import veilrec.rounds as r"),
        ("keys.py", "from veilrec import rounds"),
        ("keys.py", "from veilrec import Federation"),
        ("keys.py", "from . import rounds"),
        ("keys.py", "from .rounds import Federation"),
        ("keys.py", "def f():\n    from veilrec.rounds import Federation"),
        ("keys.py", "import importlib\nimportlib.import_module('veilrec.rounds')"),
        ("defence.py", "from typing import TYPE_CHECKING\nif not TYPE_CHECKING:\n    import veilrec.rounds"),
        ("defence.py", "if TYPE_CHECKING:\n    pass\nelse:\n    import veilrec.rounds"),
        ("defences/apm.py", "from ..models.fedmf import FedMF"),
        ("defences/apm.py", "from veilrec.models import fedmf"),
        ("models/deep/er.py", "from ...local import train"),
        ("rounds.py", "from veilrec.protocols.fedavg import FedAvg"),
        ("attacks/attribute.py", "from veilrec.clients import Clients"),
        ("attacks/attribute.py", "from veilrec import interactions"),
        ("report/html.py", "from veilrec.experiment import Experiment"),
        ("report/html.py", "import torch"),
        ("rounds.py", "import pandas as pd"),
        ("models/fedmf.py", "from sklearn.svm import SVC"),
        ("attacks/attribute.py", "from sklearn.svm import SVC"),
        ("local.py", "from safetensors.torch import save"),
        ("experiment.py", "import typer"),
        ("result.py", "from rich.console import Console"),
        ("cli/run.py", "import left_pad"),
        ("helpers.py", ""),
    ],
)
def test_planted_imports_are_caught(place: str, source: str) -> None:
    assert faults(place, source) != []


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("defence.py", "if TYPE_CHECKING:\n    from veilrec.rounds import Federation"),
        ("defence.py", "import typing\nif typing.TYPE_CHECKING:\n    import veilrec.rounds"),
        ("attacks/attribute.py", "from veilrec.attacks import classifiers\nfrom . import readings"),
        ("attacks/classifiers.py", "from sklearn.svm import SVC"),
        ("models/fedncf.py", "from .layers import MLP\nfrom ..model import Recommender"),
        ("datasets/tables.py", "import pandas\nfrom safetensors.torch import save_file"),
        ("cli/__init__.py", "from veilrec import __version__\nimport typer"),
        ("result.py", "from veilrec import __version__"),
        ("wire.py", "from safetensors.torch import save"),
        ("keys.py", "import math, torch\nfrom collections.abc import Mapping"),
    ],
)
def test_lawful_imports_pass(place: str, source: str) -> None:
    assert faults(place, source) == []
