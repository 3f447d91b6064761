"""The catalogue page: every entry with its paper and its options, read from the source without importing it.

mkdocs calls `on_files` (see mkdocs.yml); ``python docs/generate.py`` prints the page.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1] / "veilrec"
KINDS = {
    "datasets": "Where the interactions come from. A recipe names one under `[data]`.",
    "models": "Recommenders, seen from one device. A recipe names one under `[model]`.",
    "protocols": "What crosses the wire and what becomes of it there. A recipe names one under `[protocol]`.",
    "defences": "What acts on the way. A recipe names any number under `[[defence]]`, in order.",
    "erasers": "What acts after training. A recipe names any number under `[[eraser]]`, in order.",
    "attacks": "What reads the transcript. A recipe names any number under `[[attack]]`.",
}
SECTIONS = {  # tables of a recipe that name no entry: where the class of their options stands
    "plan": "base/plan.py",
    "evaluation": "engine/evaluation.py",
    "record": "wire/transcript.py",
    "threat": "lab/threat.py",
}
BOUNDS = (
    "base/limits/bounds.py",
    "base/steps.py",
    "defences/noise/noisy.py",
)  # where kinds of numbers have names
NOTES = re.compile(r"^(Papers?|Acts at): (.+)$")
OPTION = re.compile(r"^(\w+(?:, \w+)*): (.+)$")


@dataclass(frozen=True)
class Option:
    """One keyword argument of an entry."""

    name: str
    kind: str
    default: str
    meaning: str


@dataclass(frozen=True)
class Entry:
    """One class or function that a module of a catalogue lists in its ``__all__``."""

    name: str
    summary: str
    notes: list[str]
    options: list[Option]

    def markdown(self) -> str:
        """The entry as a section of the page."""
        lines = [f"### {self.name}", "", self.summary, ""]
        lines += [f"*{note}*  " for note in self.notes]
        if self.options:
            lines += ["", "| Option | Default | Meaning |", "| --- | --- | --- |"]
            lines += [
                f"| {code(o.name)}: {code(o.kind)} | {code(o.default)} | {o.meaning} |" for o in self.options
            ]
        return "\n".join(lines) + "\n"


def code(text: str) -> str:
    """Source text inside a table, where Markdown takes no bar between backticks for the end of a cell."""
    return f"`{text}`" if text else ""


def page(package: Path = PACKAGE) -> str:
    """The whole page."""
    parts = [
        "# Catalogue",
        "Every entry is one file. Its options are the keyword arguments of its constructor, "
        "and the keys of its table in a recipe. `veilrec list` prints the same from the installed package.",
    ]
    for kind, purpose in KINDS.items():
        parts += [f"## {kind.capitalize()}", purpose]
        parts += [entry.markdown() for entry in entries(package / kind)]
    if found := [entry.markdown() for entry in sections(package)]:
        parts += ["## Sections", "Tables of a recipe that name no entry.", *found]
    return "\n\n".join(parts)


def entries(folder: Path) -> Iterator[Entry]:
    """The entries of one catalogue, file by file; datasets are functions, all others classes of a paper."""
    wanted = ast.FunctionDef if folder.name == "datasets" else ast.ClassDef
    for path in sorted(folder.glob("*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        listed = names_listed(module)
        notes = paper_notes(ast.get_docstring(module) or "")
        if wanted is ast.ClassDef and not notes:
            continue  # layers, readings: what several entries use
        for node in module.body:
            if isinstance(node, wanted) and node.name in listed:
                yield entry(node, notes)


def sections(package: Path) -> Iterator[Entry]:
    """The tables that name no entry, with their options."""
    for name, place in SECTIONS.items():
        if (package / place).exists():
            module = ast.parse((package / place).read_text(encoding="utf-8"))
            (node,) = [
                one for one in module.body if isinstance(one, ast.ClassDef) and one.name.lower() == name
            ]
            yield replace(entry(node, []), name=f"`[{name}]`")


@cache
def named_numbers() -> dict[str, ast.expr]:
    """Kinds of numbers that have a name, such as ``Width``."""
    found: dict[str, ast.expr] = {}
    for place in BOUNDS:
        for node in ast.parse((PACKAGE / place).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript | ast.BinOp):
                found[ast.unparse(node.targets[0])] = node.value
    return found


class Told(ast.NodeTransformer):
    """Puts into an annotation, in the place of a number with bounds, the words for both."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        known = named_numbers().get(node.id)
        return self.visit(known) if known is not None else node  # type: ignore[no-any-return]

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        match node:
            case ast.Subscript(value=ast.Name("Annotated"), slice=ast.Tuple([kind, ast.Call() as bounds])):
                return ast.Name(f"{ast.unparse(kind)} {in_words(bounds)}")
        return self.generic_visit(node)  # type: ignore[return-value]


def in_words(bounds: ast.Call) -> str:
    """Bounds as people say them."""
    least, most = (number(one) for one in bounds.args)
    names = {word.arg for word in bounds.keywords}
    first = f"above {least}" if "above" in names else f"from {least}"
    if most == "math.inf":
        return first
    return f"{first} to {'below ' * ('below' in names)}{most}"


def number(node: ast.expr) -> str:
    """A number with commas; what is worked out stays as it stands."""
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def names_listed(module: ast.Module) -> set[str]:
    """What ``__all__`` of a module says."""
    for node in module.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return set(ast.literal_eval(value))
            case ast.AnnAssign(target=ast.Name(id="__all__"), value=ast.expr() as value):
                return set(ast.literal_eval(value))
    return set()


def paper_notes(docstring: str) -> list[str]:
    """The lines ``Paper: …`` and ``Acts at: …`` of a module's docstring, each with what continues it."""
    notes: list[str] = []
    for line in docstring.splitlines():
        if NOTES.match(line):
            notes.append(line)
        elif notes and line and not notes[-1].endswith("."):
            notes[-1] += " " + line
    return notes


def entry(node: ast.ClassDef | ast.FunctionDef, notes: list[str]) -> Entry:
    """One class or function with its options."""
    docstring = ast.get_docstring(node) or ""
    told = meanings(docstring)
    found = fields(node) if is_dataclass(node) else arguments(node)
    options = [Option(name, kind, default, told.get(name, "")) for name, kind, default in found]
    return Entry(node.name, " ".join(docstring.split("\n\n")[0].split()), notes, options)


def is_dataclass(node: ast.ClassDef | ast.FunctionDef) -> bool:
    """Whether ``@dataclass`` stands above it."""
    return any(ast.unparse(decorator).startswith("dataclass") for decorator in node.decorator_list)


def fields(node: ast.AST) -> Iterator[tuple[str, str, str]]:
    """Name, type and default of each field of a dataclass."""
    for field in getattr(node, "body", []):
        if isinstance(field, ast.AnnAssign) and "ClassVar" not in ast.unparse(field.annotation):
            default = ast.unparse(field.value) if field.value else ""
            yield ast.unparse(field.target), kind_of(field.annotation), default


def arguments(node: ast.ClassDef | ast.FunctionDef) -> Iterator[tuple[str, str, str]]:
    """Name, type and default of each keyword-only argument of a function or a constructor."""
    functions = [node] if isinstance(node, ast.FunctionDef) else node.body
    for function in functions:
        if isinstance(function, ast.FunctionDef) and function.name in {node.name, "__init__"}:
            for argument, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
                kind = kind_of(argument.annotation) if argument.annotation else ""
                yield argument.arg, kind, ast.unparse(default) if default else ""


def kind_of(annotation: ast.expr) -> str:
    """An annotation as text, numbers with their bounds."""
    return ast.unparse(Told().visit(ast.parse(ast.unparse(annotation), mode="eval").body))


def meanings(docstring: str) -> dict[str, str]:
    """What the sections ``Attributes:`` and ``Args:`` say about each name."""
    told: dict[str, str] = {}
    for section in re.split(r"^(?:Attributes|Args):\n", docstring, flags=re.MULTILINE)[1:]:
        names: list[str] = []
        indented = "\n".join(line for line in section.splitlines() if line.startswith(" "))
        for line in textwrap.dedent(indented).splitlines():
            if match := OPTION.match(line):
                names = match[1].split(", ")
                told |= dict.fromkeys(names, match[2])
            elif names:
                told |= {name: f"{told[name]} {line.strip()}" for name in names}
    return told


def on_files(files: Any, config: Any) -> Any:
    """Add the page to the documentation: the hook that mkdocs calls."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "catalogue.md", content=page()))
    return files


if __name__ == "__main__":
    print(page())
