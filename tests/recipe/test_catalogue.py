"""Entries are found by name, built from options, and added from outside."""

from __future__ import annotations

import doctest
import hashlib
import inspect
from collections.abc import Iterator
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import pytest

from tests import outside
from veilrec.defence import HOOKS
from veilrec.errors import BadInput
from veilrec.recipe import catalogue, plugins
from veilrec.recipe.settings import REQUIRED

EVERY = [(kind, name, entry) for kind in catalogue.KINDS for name, entry in catalogue.entries(kind).items()]


@pytest.fixture(autouse=True)
def _no_plugins() -> Iterator[None]:
    plugins.forget()
    yield
    plugins.forget()


@pytest.mark.parametrize(("kind", "name", "entry"), EVERY, ids=[f"{k}-{n}" for k, n, _ in EVERY])
class TestEveryEntry:
    def test_is_found_by_its_names(self, kind: str, name: str, entry: Any) -> None:
        assert catalogue.find(kind, name) is entry
        assert catalogue.find(kind, name.upper().replace("-", "_ ")) is entry
        assert catalogue.find(kind, entry.__name__) is entry

    def test_says_what_it_is(self, kind: str, name: str, entry: Any) -> None:
        assert len(catalogue.summary(entry)) > 10
        missing = [option for option, told in catalogue.options(entry).items() if not told.doc]
        assert missing == []
        module = inspect.getdoc(import_module(entry.__module__)) or ""
        if kind != "datasets":
            assert catalogue.paper(entry), "the file lacks a line `Paper: …`"
        if kind == "defences":
            acts = module.split("Acts at: ")[1].split(".")[0]
            own = {hook for hook in HOOKS if hook in vars(entry)}
            assert {hook for hook in HOOKS if hook in acts} >= own

    def test_shows_an_example(self, kind: str, name: str, entry: Any) -> None:
        if not entry.__module__.startswith("veilrec."):
            pytest.skip("an entry from outside may do without")
        found = doctest.DocTestFinder(recurse=False).find(entry, name)
        assert any(test.examples for test in found), "its docstring lacks an example: lines after >>>"

    def test_is_built_from_its_defaults(self, kind: str, name: str, entry: Any) -> None:
        if any(option.default is REQUIRED for option in catalogue.options(entry).values()):
            pytest.skip("it has an option that must be given")
        made = catalogue.build(kind, name, {})
        if kind == "models":
            assert made(12, 2).parts
        else:
            assert isinstance(made, partial if kind == "datasets" else entry)


def test_a_file_with_one_entry_lends_it_its_name() -> None:
    assert catalogue.find("defences", "none").__name__ == "Undefended"
    assert "none" in catalogue.entries("defences")


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(BadInput, match=r'^model.name: no model "FedMV"; did you mean "FedMF"\?$'):
        catalogue.build("models", "FedMV", {}, "model")
    with pytest.raises(BadInput, match=r'^modles: no such catalogue; did you mean "models"\?$'):
        catalogue.entries("modles")


def test_options_are_checked() -> None:
    with pytest.raises(BadInput, match=r'^model.dmi: FedMF has no such option; did you mean "dim"\?$'):
        catalogue.build("models", "FedMF", {"dmi": 3}, "model")
    with pytest.raises(
        BadInput, match=r'^protocol.sends: "gradient" is not allowed; did you mean "gradients"\?$'
    ):
        catalogue.build("protocols", "FedAvg", {"sends": "gradient"}, "protocol")
    assert catalogue.build("models", "fed-mf", {"dim": 3})(5, 1).dim == 3


def test_what_the_engine_fills_in_is_no_option() -> None:
    for model in catalogue.entries("models").values():
        assert not {"n_items", "n_seats"} & set(catalogue.options(model))
    assert "path" not in catalogue.options(catalogue.find("datasets", "ml-100k"))


@pytest.mark.parametrize(
    ("kind", "name", "source"),
    [
        ("models", "ItemBias", outside.MODEL),
        ("defences", "Shrink", outside.DEFENCE),
        ("attacks", "Shrug", outside.ATTACK),
        ("datasets", "pairs", outside.DATASET),
    ],
)
def test_a_plugin_adds_an_entry(tmp_path: Path, kind: str, name: str, source: str) -> None:
    path = outside.write(tmp_path, "mine.py", source)
    plugin = catalogue.load_plugin(path)
    entry = catalogue.find(kind, name.lower())
    assert catalogue.name_of(entry) == name
    assert catalogue.plugin_of(entry) == plugin
    assert plugin.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert catalogue.summary(entry)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.py"], "nothing is left beside the file"
    plugins.forget()
    assert name not in catalogue.entries(kind)


def test_a_plugin_without_a_list_offers_what_it_defines(tmp_path: Path) -> None:
    path = outside.write(tmp_path, "mine.py", outside.DEFENCE.replace('__all__ = ["Shrink"]', ""))
    catalogue.load_plugin(path)
    assert set(catalogue.entries("defences")) >= {"none", "Shrink"}
    assert "Defence" not in catalogue.entries("defences")


def test_a_plugin_that_changed_is_run_again(tmp_path: Path) -> None:
    path = outside.write(tmp_path, "mine.py", outside.DEFENCE)
    first = catalogue.load_plugin(path)
    assert catalogue.load_plugin(path) is first
    outside.write(tmp_path, "mine.py", outside.DEFENCE.replace("0.9", "0.8"))
    assert catalogue.load_plugin(path).sha256 != first.sha256
    assert catalogue.options(catalogue.find("defences", "Shrink"))["factor"].default == 0.8


@pytest.mark.parametrize(
    ("name", "source", "message"),
    [
        ("mine.py", "x = (\n", "mine.py:1: not Python: "),
        ("mine.py", "import torch\n\n1 / 0\n", "mine.py:3: ZeroDivisionError: division by zero; "),
        ("mine.py", "raise SystemExit(0)\n", "mine.py:1: SystemExit: 0; "),
        ("mine.py", "import a_package_that_is_not_there\n", "mine.py:1: ModuleNotFoundError: "),
        ("mine.py", "x = 1\n", "mine.py: brings no model, protocol, defence, attack or dataset; "),
        ("mine.py", outside.ATTACK.replace("infer", "guess"), "mine.py: Shrug lacks infer; "),
        ("mine.txt", outside.DEFENCE, "mine.txt: a plugin is a Python file; "),
    ],
)
def test_a_plugin_that_cannot_be_used(tmp_path: Path, name: str, source: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        catalogue.load_plugin(outside.write(tmp_path, name, source))
    assert message in str(caught.value)
    assert plugins.loaded() == []
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_a_plugin_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read: No such file"):
        catalogue.load_plugin(tmp_path / "none.py")


def test_two_entries_of_one_name_are_refused(tmp_path: Path) -> None:
    catalogue.load_plugin(outside.write(tmp_path, "mine.py", outside.MODEL.replace("ItemBias", "FedMF")))
    with pytest.raises(BadInput, match='there is an entry "FedMF" in models already'):
        catalogue.entries("models")


def test_an_installed_package_adds_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside.write(tmp_path, "their_defences.py", outside.DEFENCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    points = {"veilrec.defences": ["their_defences:Shrink"], "veilrec.models": ["their_defences"]}

    def entry_points_of(group: str) -> list[metadata.EntryPoint]:
        return [metadata.EntryPoint("x", value, group) for value in points.get(group, [])]

    monkeypatch.setattr(catalogue, "entry_points_of", entry_points_of)
    assert catalogue.find("defences", "shrink").__module__ == "their_defences"
    assert "Shrink" not in catalogue.entries("models"), "a module is searched for the kind of its group"
    points["veilrec.attacks"] = ["their_defences:Shrink"]
    with pytest.raises(BadInput, match="entry point their_defences:Shrink: is none of the attacks; "):
        catalogue.entries("attacks")
    points["veilrec.attacks"] = ["their_defences:Gone"]
    with pytest.raises(BadInput, match="entry point their_defences:Gone: cannot be loaded: AttributeError"):
        catalogue.entries("attacks")
