"""Entries are found by name, built from options, and added from outside."""

from __future__ import annotations

import doctest
import hashlib
import inspect
import os
import sys
from collections.abc import Iterator
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import outside
from veilrec.defence import HOOKS, Defence
from veilrec.errors import BadInput, visible
from veilrec.recipe import assembly, catalogue, plugins
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


HEAD = "from dataclasses import dataclass, field\nfrom veilrec.defence import Defence\n"
MADE = HEAD + '@dataclass(frozen=True)\nclass D(Defence):\n    """Doc."""\n'
ODD = {
    "an error without words": "class E(Exception):\n    def __str__(self): raise RuntimeError\nraise E",
    "an error of its own kind": "class E(BaseException): pass\nraise E('odd')",
    "an end": "raise GeneratorExit",
    "a long error": "raise ValueError('x' * 10**6)",
    "a list of one number": "__all__ = [5]",
    "a list that is a number": "__all__ = 5",
    "a list that is nothing": "__all__ = None",
    "a value without a module": (
        "class Odd:\n    @property\n    def __module__(self): raise RuntimeError('no')\nodd = Odd()\n"
    ),
    "a value that answers nothing": (
        "class M:\n    def __getattribute__(self, n): raise RuntimeError\nodd = M()\n__all__ = ['odd']\n"
    ),
    "a name that does not print": MADE + "    a: float = 1.0\nD.__name__ = '\\x1b[31mred'\n",
    "a default that shows nothing": (
        "class O:\n    def __repr__(self): raise RuntimeError\n"
        + MADE
        + "    a: O = field(default_factory=O)\n"
    ),
    "an annotation that is none": MADE + "    a: 'Nothing[known' = 0.5\n",
    "a signature that is a number": HEAD + "class D(Defence):\n    __signature__ = 5\n",
    "a module that hides": HEAD + "import sys\nsys.modules.pop(__name__)\nclass D(Defence): pass\n",
    "nothing but bytes": bytes(range(256)).decode("latin-1"),
    "too much": "#" * (1 << 24),
}


@pytest.mark.parametrize("what", ODD)
def test_whatever_a_plugin_holds_is_one_error(tmp_path: Path, what: str) -> None:
    path = tmp_path / "odd.py"
    path.write_text(ODD[what], encoding="latin-1")
    with pytest.raises(BadInput) as error:
        catalogue.load_plugin(path)
    assert str(error.value).startswith(str(path))
    assert len(visible(error.value)) <= 400
    assert plugins.loaded() == []
    assert not [name for name in sys.modules if name.startswith("veilrec_plugin_")]


@pytest.mark.skipif(os.name != "posix", reason="needs pipes")
def test_a_plugin_is_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "folder.py").mkdir()
    for name in ("pipe.py", "folder.py"):
        with pytest.raises(BadInput, match="no file of at most"):
            catalogue.load_plugin(tmp_path / name)


def test_an_interruption_is_no_fault_of_a_plugin(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("raise KeyboardInterrupt", encoding="utf-8")
    with pytest.raises(KeyboardInterrupt):
        catalogue.load_plugin(tmp_path / "slow.py")


@pytest.mark.parametrize("what", ["nothing", "a number", "a name", "an error without words"])
def test_whatever_an_installed_package_brings_is_one_error(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    class Point(NamedTuple):
        value: str = "theirs:thing"

        def load(self) -> Any:
            if what == "an error without words":
                raise Odd
            return {"nothing": None, "a number": 5, "a name": type("\x1b[31m", (Defence,), {})}[what]

    monkeypatch.setattr(catalogue, "entry_points_of", lambda group: (Point(),))
    with pytest.raises(BadInput, match=r"^entry point theirs:thing: ") as error:
        catalogue.entries("defences")
    assert "\x1b" not in visible(error.value)


@pytest.mark.parametrize(
    "body", ["return 5", "raise KeyError('k')", "return replace(synthetic(), n_users=1)"]
)
def test_a_dataset_from_elsewhere_that_gives_none_is_one_error(tmp_path: Path, body: str) -> None:
    (tmp_path / "theirs.py").write_text(
        "from dataclasses import replace\nfrom veilrec.datasets.synthetic import synthetic\n"
        f"from veilrec.interactions import Interactions\ndef theirs() -> Interactions:\n    {body}\n",
        encoding="utf-8",
    )
    catalogue.load_plugin(tmp_path / "theirs.py")
    with pytest.raises(BadInput, match=r"theirs\.py"):
        assembly.load({"name": "theirs", "split_seed": 0})
