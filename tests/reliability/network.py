"""No account, no network: the main commands where there is no route, not even to the machine itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.corpus.running import tree
from tests.corpus.stock import Stock
from tests.reliability.cases import ROOT, Bench, Found, Goal
from tests.reproduction import tiny

__all__ = ["COMMANDS", "alone", "goals", "missing", "prepare"]

CUT_OFF = ("unshare", "--net", "--map-root-user")
COMMANDS = {  # in this order: what a command leaves, the next ones use
    "demo": "veilrec demo -q",
    "config show": "veilrec config show recipe.toml",
    "run": "veilrec run recipe.toml --out work/run -q",
    "attack": "veilrec attack work/run -q --classifier logistic --attribute gender --known 0.5 --repeats 1",
    "evaluate": "veilrec evaluate work/run -q",
    "recommend": "veilrec recommend work/run --user u0001",
    "audit": "veilrec audit vectors.csv --attributes people.csv -q",
    "compare": "veilrec compare runs/demo/undefended runs/demo/laplace runs/demo/early-stop",
    "report": "veilrec report work/run -o work/page.html",
    "unlearn": "veilrec unlearn work/run --attribute gender --user u0001 --method leace -q",
    "verify": "veilrec verify work/run",
    "reproduce": "veilrec reproduce paper table1 --seeds 1 --out work/paper -q",
    "list": "veilrec list",
    "data import": "veilrec data import log.csv --name mine",
    "data show": "veilrec data show mine",
    "data list": "veilrec data list",
    "node": "veilrec.node work/store < letter",
}
MAY = ("runs", "work", ".cache", ".config")  # folders below the home in which something may appear
RECIPE = """
[data]
name = "synthetic"
users = 60
items = 40

[model]
name = "FedMF"
dim = 4
user = "exposed"

[plan]
rounds = 2

[evaluation]
candidates = 9
ks = [10]
"""


@cache
def missing() -> str:
    """Why this machine cannot cut a process off; empty where it can."""
    if shutil.which(CUT_OFF[0]) is None:
        return "needs unshare"
    done = subprocess.run([*CUT_OFF, "true"], capture_output=True, text=True, timeout=60, check=False)
    return f"namespaces are forbidden here: {done.stderr.strip()}" if done.returncode else ""


def goals() -> list[Goal]:
    """One: every command."""
    what = "without any route, in a home of its own, each does its work and writes nowhere else"
    return [Goal("D10.network", what, ["all commands"], _every)]


def prepare(home: Path) -> None:
    """What the commands read."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    rows = [f"p{k},{k % 7 / 7},{k % 5 / 5}" for k in range(60)]
    (home / "vectors.csv").write_text("\n".join(["id,a,b", *rows]) + "\n", encoding="utf-8")
    people = [f"p{k},{'mf'[k % 2]}" for k in range(60)]
    (home / "people.csv").write_text("\n".join(["id,gender", *people]) + "\n", encoding="utf-8")
    events = [f"p{k % 20},film {k % 7}" for k in range(100)]
    (home / "log.csv").write_text("\n".join(["user,item", *events]) + "\n", encoding="utf-8")
    tiny.write(home / "paper")
    stock = Stock(home.parent)
    stock.store(home / "work" / "store")
    (home / "letter").write_bytes(stock.letter())


def alone(words: str, home: Path, scratch: Path) -> str:
    """Run a command that is cut off, at home in a folder; what is wrong, or nothing."""
    scratch.mkdir(exist_ok=True)
    before = {**tree(home), **tree(scratch, "TMPDIR/")}
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("VEILREC_", "XDG_"))},
        **{"HOME": str(home), "TMPDIR": str(scratch), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    told, _, letter = words.partition(" < ")
    command = [*CUT_OFF, sys.executable, "-m", *told.split()]
    given = (home / letter).read_bytes() if letter else b""
    done = subprocess.run(
        command, cwd=home, env=environment, capture_output=True, input=given, timeout=300, check=False
    )
    after = {**tree(home), **tree(scratch, "TMPDIR/")}
    changed = [path for path in after if before.get(path) != after[path] and path.split("/")[0] not in MAY]
    if done.returncode or not done.stdout.strip():
        said = done.stderr.decode(errors="replace").strip()
        return f"{words}: ended with {done.returncode}: {said[-300:]}"
    return f"{words}: wrote {', '.join(changed[:5])}" if changed else ""


def _every(bench: Bench, name: str, folder: Path) -> Found:
    if reason := missing():
        return Found(True, "", reason, skipped=True)
    prepare(folder / "home")
    faults = [alone(words, folder / "home", folder / "tmp") for words in COMMANDS.values()]
    return Found(not any(faults), f"{len(COMMANDS)} commands", "; ".join(filter(None, faults)))
