"""What pages name exists: files, names to import, commands, their options, and settings of a recipe."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from pkgutil import iter_modules, resolve_name

import pytest
import typer.main

import veilrec
from veilrec.cli import app
from veilrec.lab.presets import preset
from veilrec.protocols.fedavg import FedAvg
from veilrec.recipe.catalogue import entries, options
from veilrec.recipe.sections import DATA, PLAIN
from veilrec.recipe.settings import options_of
from veilrec.reproduction.paper import Paper

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "papers").glob("*/README.md")),
]
YOURS = {"blur.py", "level.py", "my_defence.py", "vote.py"}  # files that a page tells its reader to write
ELSEWHERE = ("veilrec/node/", "benchmarks/", "tests/conftest.py")  # programs with options of their own
SPAN, BLOCK = (
    re.compile(r"`veilrec ([a-z]+)([^`#]*)`"),
    re.compile(r"```(?:bash|console)\n(.*?)```", re.DOTALL),
)
LINE = re.compile(r"^(?:\$ )? *veilrec ([a-z]+)([^\n#]*)", re.MULTILINE)
SETTING = re.compile(r"`(plan|evaluation|record|threat|data|protocol)\.(?!py\b)([a-z_]+)\b(?!\.py)")


@cache
def files() -> list[Path]:
    folders = ("veilrec", "tests", "benchmarks", "docs", "papers", "recipes")
    return [path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).rglob("*.py")]


@cache
def commands() -> dict[str, set[str]]:
    """Each command and its options; of a group also ``data list`` and the like."""
    found: dict[str, set[str]] = {}

    def collect(name: str, command: object) -> None:
        found[name] = {flag for param in command.params for flag in (*param.opts, *param.secondary_opts)}  # type: ignore[attr-defined]
        for inner, below in getattr(command, "commands", {}).items():
            collect(f"{name} {inner}".strip(), below)
            found[name] |= found[f"{name} {inner}".strip()]

    collect("", typer.main.get_command(app))
    return found


@cache
def settings() -> dict[str, set[str]]:
    """What each table of a recipe may hold, whatever dataset it names."""
    found = {name: set(options_of(made)) for name, made in PLAIN.items()}
    datasets = {name for entry in entries("datasets").values() for name in options(entry)}
    return {**found, "data": {*DATA, *datasets}, "protocol": {"name", *options_of(FedAvg)}}


@cache
def flags_elsewhere() -> str:
    """The sources of programs with options of their own."""
    paths = [path for path in files() if path.as_posix().startswith(ELSEWHERE)]
    return "\n".join((ROOT / path).read_text(encoding="utf-8") for path in paths)


def missing(text: str) -> Iterator[str]:
    """What a page names that does not exist."""
    for name in set(re.findall(r"(?:[\w-]+/)*[\w-]+\.py\b", text)) - YOURS:
        if not any(path.match(name) for path in files()):
            yield name
    for name in set(re.findall(r"\bveilrec(?:\.[A-Za-z_]\w*)+", text)):
        try:
            resolve_name(name)
        except (AttributeError, ImportError):
            yield name
    yield from missing_commands(text)
    for section, key in set(SETTING.findall(text)):
        if key not in settings()[section]:
            yield f"{section}.{key}"


def missing_commands(text: str) -> Iterator[str]:
    """Commands and options that a page names, also an option by itself; and presets."""
    known = commands()
    in_blocks = [found for block in BLOCK.findall(text) for found in LINE.findall(block)]
    for command, rest in [*SPAN.findall(text), *in_blocks]:
        inner = f"{command} {(rest.split() or [''])[0].split('|')[0]}"
        name = inner if inner in known else command
        if name not in known:
            yield f"veilrec {name}"
        for flag in re.findall(r"(?<!\S)--[a-z][a-z-]*", rest):
            if flag not in known.get(name, ()):
                yield f"veilrec {name} {flag}"
    for flag in set(re.findall(r"`(--[a-z][a-z-]*)", text)) - known[""]:
        if f'"{flag}"' not in flags_elsewhere():
            yield flag
    for name in set(re.findall(r"--preset ([a-z0-9-]+)", text)):
        preset(name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_exists(page: Path) -> None:
    assert sorted(missing(page.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "text",
    [
        "`veilrec/nowhere.py`",
        "`runs/presets.py`",
        "veilrec.base.keys.Nothing",
        "`veilrec apm`",
        "```bash\nveilrec run recipe.toml --nothing\n```",
        "`--nothing`",
        "`plan.nothing`",
        "`plan.nothing = 3`",
    ],
)
def test_what_does_not_exist_is_found(text: str) -> None:
    assert list(missing(text)) != []


@pytest.mark.parametrize(
    "text",
    [
        "`veilrec/rounds.py`, `common/readings.py` and rounds.py",
        "veilrec.base.keys.Keys, and the group veilrec.defences",
        "`veilrec data list|show`, `veilrec run recipe.toml --set plan.rounds=3`; veilrec trains.",
        "`--budget` and `--json`",
        "`plan.order`, `plan.rounds = 3`, `data.name`",
    ],
)
def test_what_exists_passes(text: str) -> None:
    assert list(missing(text)) == []


def test_the_paper_in_the_guide_is_one(tmp_path: Path) -> None:
    blocks = re.findall(
        r"```toml\n(.*?)```", (ROOT / "docs" / "guide.md").read_text(encoding="utf-8"), re.DOTALL
    )
    (tmp_path / "paper.toml").write_text(
        next(text for text in blocks if "[tables." in text), encoding="utf-8"
    )
    (tmp_path / "recipe.toml").write_text(
        next(text for text in blocks if "[model]" in text), encoding="utf-8"
    )
    paper = Paper.load(str(tmp_path))
    assert {method: paper.changes(method, "synthetic")[:1] for method in paper.methods} == {
        "none": ["data.name=synthetic"],
        "laplace": ["data.name=synthetic"],
    }


def test_the_package_lists_its_modules_in_reading_order() -> None:
    listed = re.findall(r"^    (\w+) {2,}", veilrec.__doc__ or "", re.MULTILINE)
    assert sorted(listed) == sorted(found.name for found in iter_modules(veilrec.__path__) if not found.ispkg)
