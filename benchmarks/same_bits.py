"""``python benchmarks/same_bits.py OLD NEW``: whether two trees compute the same bits.

Both run every case of `bit_cases` by their command lines. What they leave is compared by group, and by key
within it: the dtype, shape and bytes of tensors, and what result.json and other texts say, but for seconds.
Ends with 1 if anything differs. A case called "resume" is run through by OLD, and stopped and resumed by NEW.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import trees
from benchmarks.bit_cases import CASES, RENAMED, RESUMED
from benchmarks.harness import say, table

BAD_INPUT, INTERRUPTED = 2, 130  # exit codes
FAILED = "failed"
STOPPED_AFTER = 3  # rounds
TENSORS = {"model": "model", "private": "users", "transcript": "transcript"}  # group → file
TOLD = {  # group → what belongs to it in result.json
    "utility": ("utility", "selected", "rounds", "stopped", "curves", "utility_replicates"),
    "traffic": ("traffic",),
    "ledger": ("ledger",),
    "discloses": ("discloses",),
    "privacy": ("privacy",),
}
GROUPS = (*TENSORS, "metrics", "people", *TOLD)
NOTHING = "nothing"
VOLATILE = {"seconds"}  # the last names of keys that no two runs share
GONE = "memory/helper/"  # markers of zero that a server kept of helper parts: it asks the model now
MOVED: dict[str, str] = {}  # the beginning of a key in the new tree → what it was in the old one
# Changes of bits that are meant, by name, and the patch of the new tree that takes each out again.
KNOWN = {"float64": Path(__file__).with_name("rows_in_float32.py")}
CLI = (
    "\nimport runpy\nrunpy.run_module('veilrec', run_name='__main__', alter_sys=True)\n"  # as python -m does
)

Leaves = dict[str, str]  # key → what is there, exactly
Found = dict[str, Leaves]  # by group


class Failed(Exception):
    """A tree that did not do what it was asked."""


def leaves(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every number and word of a JSON value by its path; an empty list or table is one, too."""
    if isinstance(value, dict | list) and value:
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if name not in VOLATILE:
                yield from leaves(inner, f"{key}.{name}" if key else str(name))
    else:
        yield key, json.dumps(value)


def tensors(path: Path) -> Leaves:
    """The dtype, shape and hash of every tensor of a safetensors file."""
    whole = path.read_bytes()
    begin = 8 + int.from_bytes(whole[:8], "little")
    found = {}
    for name, about in json.loads(whole[8:begin]).items():
        if name != "__metadata__":
            first, last = about["data_offsets"]
            digest = hashlib.sha256(whole[begin + first : begin + last]).hexdigest()
            found[name] = f"{about['dtype']} {about['shape']} {digest[:12]}"
    return found


def read(run: Path) -> Found:
    """All that a run directory holds that another run of the same bits must hold, too."""
    result = json.loads((run / "result.json").read_text(encoding="utf-8"))
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    with (run / "per_user.csv").open(encoding="utf-8", newline="") as file:
        people = {row["user"]: row for row in csv.DictReader(file)}
    files = {group: run / f"{name}.safetensors" for group, name in TENSORS.items()}
    found = {group: tensors(path) if path.exists() else {} for group, path in files.items()}
    found |= {"metrics": dict(leaves({row["round"]: row for row in rows})), "people": dict(leaves(people))}
    for group, names in TOLD.items():
        found[group] = dict(leaves({name: result[name] for name in names if name in result}))
    return found


def spelt(key: str) -> str:
    """A key of the new tree as the old one has it."""
    for new, old in MOVED.items():
        if key == new or key.startswith(f"{new}."):
            return old + key.removeprefix(new)
    return key


def differences(old: Mapping[str, Leaves], new: Mapping[str, Leaves]) -> dict[str, list[str]]:
    """What differs, by group; a group in which nothing does is left out."""
    found = {}
    for group in GROUPS:
        before, after = old.get(group, {}), {spelt(k): v for k, v in new.get(group, {}).items()}
        keys = [k for k in {**before, **after} if before.get(k) != after.get(k) and not k.startswith(GONE)]
        if keys:
            found[group] = [f"{k}: {before.get(k, NOTHING)} → {after.get(k, NOTHING)}" for k in keys]
    return found


def run(tree: Path, name: str, folder: Path, *, renamed: bool, patch: str, stop: bool) -> Found:
    """One case on one tree, in a new folder.

    Args:
        tree, name, folder: Which tree, which case, and where.
        renamed: Whether the recipe is tried first as the new tree spells it.
        patch: Python that runs before the command line does.
        stop: Whether it is stopped on its way, and resumed.

    Raises:
        Failed: With the tree's own words.
    """
    out, recipe = folder / "run", folder / f"{name}.toml"
    order = [*(("-c", patch + CLI) if patch else trees.CLI), "run", str(recipe), "--out", str(out), "--quiet"]
    meanwhile = trees.interrupt(out / "metrics.jsonl", STOPPED_AFTER) if stop else None
    for text in [RENAMED[name], CASES[name]] if renamed and name in RENAMED else [CASES[name]]:
        recipe.write_text(text, encoding="utf-8")
        ended = trees.start(tree, order, meanwhile)
        if ended.code != BAD_INPUT:
            break
    if stop:
        if ended.code != INTERRUPTED:
            raise Failed(f"not interrupted: {ended.reason}")
        ended = trees.start(tree, [*order, "--resume"])
    if ended.code:
        raise Failed(ended.reason)
    return read(out)


def compare(name: str, old: Path, new: Path, patch: str = "") -> dict[str, list[str]]:
    """What differs in one case; under "failed" stands what a tree said that could not do it."""
    with tempfile.TemporaryDirectory(prefix="same-bits-") as place:
        before, after = Path(place, "old"), Path(place, "new")
        before.mkdir()
        after.mkdir()
        try:
            one = run(old, name, before, renamed=False, patch="", stop=False)
        except Failed as failure:
            return {FAILED: [f"old tree: {failure}"]}
        try:
            other = run(new, name, after, renamed=True, patch=patch, stop=name in RESUMED)
        except Failed as failure:
            return {FAILED: [f"new tree: {failure}"]}
    return differences(one, other)


def row(name: str, found: Mapping[str, Sequence[str]]) -> list[str]:
    """A line of the table: whether each group is equal, and the first difference."""
    marks = ["?" if FAILED in found else "≠" if group in found else "=" for group in GROUPS]
    first = next((f"{group} {said[0]}" for group, said in found.items()), "")
    more = sum(map(len, found.values())) - 1
    return [name, *marks, first + (f" (and {more} more)" if more > 0 else "")]


def patched(drop: str, file: Path | None) -> str:
    """What the new tree runs before anything else."""
    files = [*([KNOWN[drop]] if drop in KNOWN else []), *([file] if file else [])]
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def main(given: Sequence[str] | None = None) -> int:
    """Compare, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path, help="a folder with a veilrec in it")
    parser.add_argument("new", type=Path)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="NAME")
    parser.add_argument(
        "--drop", choices=[*KNOWN, "none"], default="float64", help="a change of bits that is taken out again"
    )
    parser.add_argument("--patch", type=Path, metavar="FILE", help="Python that the new tree runs first")
    options = parser.parse_args(given)
    patch = patched(options.drop, options.patch)
    old, new = trees.check(options.old), trees.check(options.new)
    rows, differ = [], 0
    for place, name in enumerate(options.only, 1):
        found = compare(name, old, new, patch)
        differ += bool(found)
        rows.append(row(name, found))
        say(f"{place}/{len(options.only)} {name}: {rows[-1][-1] or 'equal'}")
    print(table(["case", *GROUPS, "first difference"], rows))
    print(f"\n{len(rows) - differ} of {len(rows)} cases equal; {trees.spent():.0f} CPU seconds")
    return bool(differ)


if __name__ == "__main__":
    raise SystemExit(main())
