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

COMPARED = (
    *("alike", "arms", "comparison", "epsilons", "groups", "leaks", "paired_audits", "sentences"),
    *("statements", "vector_audits"),
)
METRICS = {f"metrics/{name}" for name in COMPARED}  # of finished runs; the rest of the room is below them
LAYERS = [  # each may import only from the rows above it; a room stands for its modules that have no row
    {"errors"},
    {"base"},
    {"base/scratch", "base/steps", "base/tensors", "interactions", "metrics", "privacy/mechanism"},
    {"base/draws", "base/plan", "clients", "wire/frame", "wire/notes"},
    {"engine/devices/shelf", "wire/codec"},
    {"engine/devices/kept", "engine/devices/slabs", "wire/uploads"},
    {"engine/devices/store"},
    {"examples"},
    {"model"},
    {"engine/features", "engine/devices/private_rows", "engine/workers"},
    {"protocol", "wire"},
    {"attack", "defence", "eraser", "wire/halves"},
    {"lab/threat", "privacy/disclosure"},
    {"attacks", "datasets", "defences", "erasers", "models", "protocols"},
    {"engine/evaluation", "engine/groups", "engine/helper_steps"},
    {"engine/local"},
    {"engine/fused", "engine/outgoing", "engine/refusals"},
    {"engine/respond"},
    {"engine/serving"},
    {"engine/fleet"},
    {"engine/in_process"},
    {"rounds"},
    {"engine", "recipe/plugins", "recipe/settings", "runs/integrity"},
    {"result"},
    {*METRICS, "recipe/catalogue"},
    {"lab", "privacy"},
    {"runs", "runs/integrity/verify"},
    {"experiment"},
    {"recipe"},
    {"node"},
    {"deploy", "report", "reproduction"},
    {"report/audit/live"},
    {"__init__"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
CATALOGUES = {"attacks", "datasets", "defences", "erasers", "models", "protocols"}
DEVICES = {"clients", "engine", "interactions", *(name for name in LEVEL if name.startswith("engine/"))}
PEOPLE = {*DEVICES, "examples", "protocol"} - {"engine/workers"}  # what the devices hold

BLIND = {  # beyond the order of the rows: what a module must not know, although it lies below
    "attack": PEOPLE,
    "attacks": PEOPLE,
    "lab/threat": PEOPLE,
    "protocol": DEVICES,
    "protocols": DEVICES,
    "eraser": DEVICES,
    "erasers": DEVICES,
    "deploy": CATALOGUES,
    **{name: CATALOGUES for name in LEVEL if name.startswith("engine")},
    "node": CATALOGUES,
    "report": set(LEVEL) - {"errors", "metrics", "result", *METRICS},
    "rounds": CATALOGUES,
}

LINE = {name for level in LAYERS[: LEVEL["rounds"] + 1] for name in level} - {"datasets", "errors"}
STORED = {"base/tensors", "wire", "wire/codec"}  # where the line meets bytes
EDGES = {"cli", "datasets", "experiment", "lab", "privacy", "recipe", "report", "result", "runs"}
FENCES = {  # where a package may be imported: a module or folder of ours, or one file
    "torch": set(LEVEL) - {"errors", "report"},
    "numpy": set(LEVEL) - {"errors"},
    "dp_accounting": EDGES,
    "flwr": {"deploy"},
    "jinja2": {"report"},
    "model2vec": {"models/morec.py"},
    "numba": {"defences/noise/compiled.py"},
    "pandas": EDGES,
    "platformdirs": EDGES,
    "pooch": {"datasets"},
    "pyarrow": {"lab/columns.py", "lab/originals/parquet.py"},
    "rich": {"cli"},
    "safetensors": {"base/tensors", "datasets", "wire", "wire/codec"},
    "scipy": {*EDGES, "metrics/measures.py"},
    "sklearn": {"attacks/common/classifiers.py", "reproduction/drawn/clouds.py"},
    "threadpoolctl": {"attacks/common/jobs.py"},
    "tomlkit": {"base/toml.py"},
    "transformers": {"models/morec.py"},
    "typer": {"cli"},
    "xgboost": {"attacks/common/classifiers.py"},
}


def row_of(parts: list[str]) -> str:
    """The longest beginning of a place that has a row: ``engine/store``, or its room."""
    return next((p for n in range(len(parts), 0, -1) if (p := "/".join(parts[:n])) in LEVEL), "")


def home(place: str) -> str:
    """The module or room of ours that a file belongs to: ``defences/apm.py`` → ``defences``."""
    parts = place.removesuffix(".py").split("/")
    return row_of(parts) or parts[0]


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
    """The row of ours behind a dotted name; what only the package itself offers is its ``__init__``."""
    parts = name.split(".")[1:]
    return row_of(parts) or (parts[0] if len(parts) > 1 else "__init__")


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
            neighbours = there.split("/")[0] == here.split("/")[0]
            if LEVEL.get(there, len(LAYERS)) >= LEVEL[here] + neighbours:
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
    assert {"base", "rounds", "models"} <= {home(path.relative_to(PACKAGE).as_posix()) for path in FILES}


@pytest.mark.parametrize("package", sorted(set(FENCES) - {"numpy", "torch"}))
def test_the_line_has_only_torch_and_numpy(package: str) -> None:
    assert FENCES[package] & LINE == (STORED if package == "safetensors" else set())


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("base/keys.py", "from veilrec.interactions import Interactions"),
        ("base/keys.py", "import veilrec.rounds"),
        ("base/keys.py", "import veilrec.rounds as r"),
        ("base/keys.py", "from veilrec import rounds"),
        ("base/keys.py", "from veilrec import Federation"),
        ("base/keys.py", "from .. import rounds"),
        ("base/keys.py", "from ..rounds import Federation"),
        ("base/keys.py", "def f():\n    from veilrec.rounds import Federation"),
        ("base/keys.py", "import importlib\nimportlib.import_module('veilrec.rounds')"),
        ("defence.py", "from typing import TYPE_CHECKING\nif not TYPE_CHECKING:\n    import veilrec.rounds"),
        ("defence.py", "if TYPE_CHECKING:\n    pass\nelse:\n    import veilrec.rounds"),
        ("defences/apm.py", "from ..models.fedmf import FedMF"),
        ("defences/apm.py", "from veilrec.models import fedmf"),
        ("models/deep/er.py", "from ...engine.local import train"),
        ("rounds.py", "from veilrec.protocols.fedavg import FedAvg"),
        ("attacks/attribute.py", "from veilrec.clients import Clients"),
        ("attacks/attribute.py", "from veilrec import interactions"),
        ("report/html.py", "from veilrec.experiment import Experiment"),
        ("report/html.py", "import torch"),
        ("rounds.py", "import pandas as pd"),
        ("models/fedmf.py", "from sklearn.svm import SVC"),
        ("attacks/attribute.py", "from sklearn.svm import SVC"),
        ("engine/local.py", "from safetensors.torch import save"),
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
        ("attacks/attribute.py", "from veilrec.attacks.common import jobs\nfrom .common import readings"),
        ("attacks/common/classifiers.py", "from sklearn.svm import SVC"),
        ("models/fedncf.py", "from .common.layers import MLP\nfrom ..model import Recommender"),
        ("datasets/tables.py", "import pandas\nfrom safetensors.torch import save_file"),
        ("cli/__init__.py", "from veilrec import __version__\nimport typer"),
        ("result.py", "from veilrec import __version__"),
        ("wire/codec.py", "from safetensors.torch import save"),
        ("base/keys.py", "import math, torch\nfrom collections.abc import Mapping"),
    ],
)
def test_lawful_imports_pass(place: str, source: str) -> None:
    assert faults(place, source) == []
