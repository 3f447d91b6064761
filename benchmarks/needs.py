"""``python benchmarks/needs.py --data-dir DIR``: what `veilrec run --plan` says against what a run then took.

Every recipe of the papers and of ``recipes/``, each in a process of its own, one after another, the cheapest
first. A run is shortened where that does not change its peak: memory does not grow with rounds but for what
devices keep, which the estimate counts by the rounds it is given; where that matters, everybody takes part,
so that as few rounds are enough. An audit is shortened to the attribute and the attackers that hold most. Of
a sweep the first and the last cell are run. What was measured is kept in a file, and not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
if __package__ in (None, ""):
    sys.path.insert(0, str(ROOT))

from benchmarks.harness import say, table

DEADLINE = 1800.0
GOOD = 1.5  # either way
SHORT = ("plan.rounds=2", "plan.evaluate_every=1", "plan.patience=0")
APM = ('threat.also=["apm"]', 'threat.attributes=["gender"]', "threat.by_part=false")
EVERYBODY = ("plan.cohort=1.0",)
CHILD = """
import sys
from veilrec.base.limits.machine import peak
from veilrec.cli import main

code = main(sys.argv[2:])
open(sys.argv[1], "w").write(str(peak()))
sys.exit(code)
"""


class Case(NamedTuple):
    """A recipe, the settings that shorten it, and which cell of its sweep is run; None where it has none."""

    recipe: str
    sets: Sequence[str] = ()
    cell: int | None = None

    @property
    def name(self) -> str:
        """The recipe, its cell, and the settings that it was run with."""
        return " ".join([self.recipe, *([f"cell {self.cell}"] if self.cell is not None else []), *self.sets])


CASES = (
    Case("recipes/quickstart.toml", SHORT),
    Case("recipes/fedmf-ml100k.toml", SHORT),
    Case("recipes/fedncf-ml100k.toml", SHORT),
    Case("recipes/frontier.toml", SHORT, 0),
    Case("recipes/frontier.toml", SHORT, 8),
    Case("recipes/fedmf-ml1m.toml", SHORT),
    Case("recipes/fedncf-ml1m.toml", SHORT),
    Case("papers/fedau2/fedncf.toml", SHORT),
    Case("papers/fedau2/fedrap.toml", ("plan.rounds=12", "plan.patience=0", *EVERYBODY)),
    Case("papers/fedau2/fedvae.toml", SHORT),
    Case("papers/pard/fedncf.toml", SHORT),
    Case("papers/pard/pard.toml", (*SHORT, *EVERYBODY, "defence.0.warm_up=0")),
    Case("papers/apm/fedmf.toml", (*SHORT, *APM)),
    Case("papers/apm/fedncf.toml", (*SHORT, *APM)),
    Case("papers/apm/fedlightgcn.toml", (*SHORT, *APM)),
    Case("papers/apm/fedrec.toml", (*SHORT, *APM)),
    Case("papers/apm/frontier.toml", (*SHORT, *APM), 0),
    Case("papers/apm/frontier.toml", (*SHORT, *APM), 8),
    Case("recipes/leaks-ml100k.toml", (*SHORT, 'threat.attributes=["gender"]', "threat.by_part=false")),
    Case("recipes/leaks-ml1m.toml", (*SHORT, *APM, "threat.own=false", "threat.membership=false")),
)


def measured(case: Case, data_dir: Path, folder: Path) -> dict[str, Any]:
    """The estimate, and the peak of the run, in bytes."""
    recipe = cell_of(case, data_dir, folder)
    sets = [word for one in case.sets for word in ("--set", one)]
    command = ["run", str(recipe), *sets, "--data-dir", str(data_dir), "--quiet"]
    began = os.times()
    plan = json.loads(run(folder, [*command, "--plan", "--json"])[0])["runs"][0]
    peak = run(folder, [*command, "--seed", "0", "--out", str(folder / "run")])[1]
    ended = os.times()
    spent = ended.children_user + ended.children_system - began.children_user - began.children_system
    told = plan["peak"]
    return {"case": case.name, "estimate": told["bytes"], "phase": told["phase"], "peak": peak, "cpu": spent}


def cell_of(case: Case, data_dir: Path, folder: Path) -> Path:
    """The recipe, or one cell of its sweep as a recipe of its own."""
    if case.cell is None:
        return ROOT / case.recipe
    from veilrec.recipe import Recipe

    cell = Recipe.load(ROOT / case.recipe, data_dir=data_dir).cells()[case.cell]
    path = folder / Path(case.recipe).name
    path.write_text(cell.recipe.toml(), encoding="utf-8")
    return path


def run(folder: Path, arguments: Sequence[str]) -> tuple[str, int]:
    """What a command prints, and the most memory it held."""
    note = folder / "peak"
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(note), *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout, int(note.read_text())


def known(path: Path) -> Iterator[dict[str, Any]]:
    """What was measured before."""
    if path.is_file():
        yield from (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True, help="where MovieLens lies")
    parser.add_argument("--kept", type=Path, default=Path("needs.jsonl"), help="what was measured so far")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    given = parser.parse_args()
    found = {row["case"]: row for row in known(given.kept)}
    for case in CASES:
        if case.name in found or given.only not in case.name:
            continue
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            found[case.name] = row = measured(case, given.data_dir.absolute(), Path(folder))
        with given.kept.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        say(f"{case.name}: {row['estimate'] / row['peak']:.2f}, in {time.perf_counter() - began:.0f} s")
    rows = [found[case.name] for case in CASES if case.name in found]
    shown = [
        (row["case"], row["phase"], f"{row['estimate'] / 1e6:,.0f}", f"{row['peak'] / 1e6:,.0f}", ratio(row))
        for row in rows
    ]
    print(table(("recipe", "in", "estimate, MB", "VmHWM, MB", "ratio"), shown))
    missing = [case.name for case in CASES if case.name not in found]
    print(
        f"{len(rows)} of {len(CASES)} measured in {sum(row['cpu'] for row in rows):.0f} CPU s",
        *missing,
        sep="\n",
    )
    sys.exit(any(not 1 / GOOD <= row["estimate"] / row["peak"] <= GOOD for row in rows))


def ratio(row: dict[str, Any]) -> str:
    """Estimate over peak."""
    return f"{row['estimate'] / row['peak']:.2f}"


if __name__ == "__main__":
    main()
