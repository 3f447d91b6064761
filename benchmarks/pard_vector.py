"""What the vector that PARD uploads is worth: how far it moves, who needs it, and what it tells.

``python -m benchmarks.pard_vector --data-dir DIR`` trains PARD and FedAvg as papers/pard has them on
MovieLens-100K, ranks again with user vectors exchanged, attacks what was uploaded, and prints three tables:
some seven minutes of one core a seed. Everything is done by the command line and read from run directories:

* *start* is the same recipe and seed for one round in which user vectors have a rate of zero, so that its
  probe uploads what they begin with;
* z^re never leaves the device but for those who consent and post it, so its way is that of their posts;
* vectors are exchanged in a copy of the selected state, which is then scored like any other.

With ``--runs DIR`` the runs stay there, and those that are finished are not run again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from veilrec.runs.integrity import changes

Change = Callable[[dict[str, Tensor]], None]  # of the private parts of a state
Found = dict[str, list[list[float]]]  # of each row its columns, of each column one number a seed
ROOT = Path(__file__).parents[1]
METRICS = ("recall@10", "ndcg@10")
RECIPES = {"PARD": "papers/pard/pard.toml", "FedAvg": "papers/pard/fedncf.toml"}
START = ("plan.rounds=1", "plan.lr.user=0")
STARTS = {"PARD": (*START, "plan.lr.user_re=0", "defence.0.warm_up=0"), "FedAvg": START}
ALWAYS = ('threat.attributes=["gender", "age", "occupation"]', 'threat.also=["pard"]')
PROBE = "r000000"  # everybody once more, on the selected state
HALVES = {"user": "z^ir, uploaded", "user_re": "z^re, kept"}
GIFTS = ("--grant", "interactions")
READINGS = {
    "uploaded vector and items": ("--reads", "parameters", *GIFTS),
    "uploaded vector alone": ("--reads", "embeddings"),
    "kept vector alone (granted)": ("--reads", "withheld", "--grant", "withheld"),
    "items alone": ("--reads", "parameters", "--part", "item", *GIFTS),
    "items alone, picked from the upload": ("--reads", "parameters", "--part", "item"),
}
ATTACKERS = {
    "logistic": ("--classifier", "logistic", "--selection", "last"),
    "AIA, best epoch by the truth": ("--classifier", "mlp-pard", "--selection", "oracle"),
}


class Way(NamedTuple):
    """How far vectors went, as means over users.

    Attributes:
        start, end: Their length.
        moved: Length of the difference, as a share of that at the start.
        cosine: Of the end against the start.
    """

    start: float
    end: float
    moved: float
    cosine: float


def way(start: Tensor, end: Tensor) -> Way:
    """How far each row went.

    Raises:
        ValueError: Where the two are not of the same users.
    """
    if start.shape != end.shape:
        raise ValueError(f"{tuple(start.shape)} and {tuple(end.shape)} are not vectors of the same users")
    first, last = start.double().flatten(1), end.double().flatten(1)
    lengths = first.norm(dim=1)
    return Way(
        float(lengths.mean()),
        float(last.norm(dim=1).mean()),
        float(((last - first).norm(dim=1) / lengths).mean()),
        float(torch.cosine_similarity(first, last, dim=1).mean()),
    )


def of_another(vectors: Tensor, seed: int = 0) -> Tensor:
    """Every row is that of somebody else: one cycle through all rows, drawn by the seed."""
    order = torch.randperm(len(vectors), generator=torch.Generator().manual_seed(seed))
    given = torch.empty_like(order)
    given[order] = order.roll(1)
    return vectors[given]


def exchanges(kept: Sequence[str], begins: Tensor) -> dict[str, Change]:
    """What is done to user vectors before users are ranked again; `begins`: where uploaded ones began."""

    def zero(name: str) -> Change:
        return lambda state: state.update({name: torch.zeros_like(state[name])})

    def another(name: str) -> Change:
        return lambda state: state.update({name: of_another(state[name])})

    def back(state: dict[str, Tensor]) -> None:
        state["user"] = begins[state["client"]].reshape(state["user"].shape)

    found: dict[str, Change] = {"uploaded vector as it began": back}
    for name in kept:
        side = "uploaded" if name == "user" else "kept"
        found |= {f"{side} vector of another user": another(name), f"{side} vector zero": zero(name)}
    return found


@contextmanager
def exchanged(run: Path, exchange: Change) -> Iterator[Path]:
    """A copy of a run whose private parts are changed, and whose digest says so."""
    with tempfile.TemporaryDirectory(dir=run.parent) as folder:
        copy = Path(folder) / "run"
        shutil.copytree(run, copy, ignore=shutil.ignore_patterns("checkpoint", "lock"))
        tensors, metadata = _load(run / "users.safetensors")
        exchange(tensors)
        with changes.change(copy) as new, new.writing("users.safetensors", secret=True) as file:
            file.write(save(tensors, metadata=metadata))
        yield copy


def probe(run: Path) -> tuple[Tensor, dict[str, Tensor]]:
    """User vectors as they are uploaded, a row a client, and as they are posted, with their owners."""
    sent, _ = _load(run / "transcript.safetensors", PROBE)
    order = sent[f"{PROBE}/cohort"].argsort()
    posts = {key.rpartition("/")[2]: value for key, value in sent.items() if "/posts/" in key}
    return sent[f"{PROBE}/user"][order].flatten(1), posts


def ways(start: Path, end: Path) -> dict[str, Way]:
    """The way of a run's vectors, half by half."""
    (first, posted), (last, later) = probe(start), probe(end)
    found = {"user": way(first, last)}
    name = next((key for key in posted if key.endswith("user_re")), None)
    if name:
        if not posted["owner"].equal(later["owner"]):
            raise ValueError("others posted at the start than at the end")
        found["user_re"] = way(posted[name], later[name])
    return found


def auc_of(found: Any, attribute: str) -> float:
    """The AUC of the one attacker in what `veilrec attack --json` prints."""
    (audits,) = found.values()
    (audit,) = audits.values()
    (attacker,) = audit["attributes"][attribute]["attackers"]
    return float(attacker["scores"]["auc"]["value"])


def told(values: Sequence[float], digits: int) -> str:
    """One number as it is; of several the mean and, in brackets, from the least to the greatest."""
    mean = f"{sum(values) / len(values):.{digits}f}"
    if len(set(values)) == 1:
        return mean
    return f"{mean} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def table(head: Sequence[str], found: Found, digits: int) -> str:
    """Markdown: a row for each name, a cell for each column, over all seeds."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for name, columns in found.items():
        lines.append([name, *(told(values, digits) if values else "–" for values in columns)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def veilrec(*arguments: str) -> str:
    """What the command line prints."""
    command = [sys.executable, "-m", "veilrec", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def trained(name: str, folder: Path, seed: int, options: argparse.Namespace, *changes: str) -> Path:
    """A run, made unless it is there."""
    if not (folder / "result.json").exists():
        print(f"{folder.name} …", file=sys.stderr, flush=True)
        settings = [word for change in (*ALWAYS, *changes) for word in ("--set", change)]
        where = ["--data-dir", str(options.data_dir)] if options.data_dir else []
        rest = ["--seed", str(seed), "--out", str(folder), "--quiet"]
        veilrec("run", str(ROOT / RECIPES[name]), *settings, *rest, *where)
    return folder


def moves(begun: dict[str, Path], ended: dict[str, Path], found: Found) -> None:
    """How far vectors went, into the rows of the first table."""
    for name, run in ended.items():
        for half, gone in ways(begun[name], run).items():
            add(found, f"{name}: {HALVES[half] if name == 'PARD' else 'user vector, uploaded'}", gone)


def ranks(begun: dict[str, Path], ended: dict[str, Path], found: Found) -> None:
    """How well users are served with vectors exchanged, into the rows of the second table."""
    for name, run in ended.items():
        plain = scored(run)
        add(found, f"{name}, as trained", plain["test"])
        halves = ["user", "user_re"] if name == "PARD" else ["user"]
        for what, change in exchanges(halves, probe(begun[name])[0]).items():
            with exchanged(run, change) as copy:
                add(found, f"{name}, {what}", scored(copy)["test"])
    add(found, "popularity", plain["floor"])


def tells(ended: dict[str, Path], options: argparse.Namespace, found: Found) -> None:
    """What attackers find in what they read, into the rows of the third table."""
    rest = ["--attribute", options.attribute, "--repeats", str(options.repeats), "--no-save", "--json"]
    for what, reading in READINGS.items():
        for attacker, learner in ATTACKERS.items():
            columns = found.setdefault(f"{what}; {attacker}", [[] for _ in ended])
            for column, (name, run) in zip(columns, ended.items(), strict=True):
                if name == "PARD" or "withheld" not in reading:
                    said = veilrec("attack", str(run), *reading, *learner, *rest, "--quiet")
                    column.append(auc_of(json.loads(said), options.attribute))


def add(found: Found, row: str, values: Iterable[float]) -> None:
    """Take in what one seed gave for one row."""
    values = list(values)
    for column, value in zip(found.setdefault(row, [[] for _ in values]), values, strict=True):
        column.append(value)


def scored(run: Path) -> dict[str, list[float]]:
    """Recall and NDCG of the test items, and those of popularity."""
    said = json.loads(veilrec("evaluate", str(run), "--json", "--quiet"))
    return {which: [said[which][metric] for metric in METRICS] for which in ("test", "floor")}


def main() -> None:
    """Print three tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, help="where datasets are looked for first")
    parser.add_argument("--runs", type=Path, help="where runs stay, and are taken from if they are finished")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--repeats", type=int, default=10, help="draws of known users")
    parser.add_argument("--attribute", default="gender")
    options = parser.parse_args()
    moved: Found = {}
    served: Found = {}
    read: Found = {}
    with tempfile.TemporaryDirectory() as folder:
        runs = (options.runs or Path(folder)).resolve()
        for seed in options.seeds:
            begun = {n: trained(n, runs / f"start-{n}-{seed}", seed, options, *STARTS[n]) for n in RECIPES}
            ended = {n: trained(n, runs / f"{n}-{seed}", seed, options) for n in RECIPES}
            moves(begun, ended, moved)
            ranks(begun, ended, served)
            tells(ended, options, read)
    print(table(["Vector", "length at the start", "at the end", "moved by", "cosine"], moved, 3), "\n")
    print(table(["User vectors", "R@10", "N@10"], served, 3), "\n")
    print(table([f"What is read; by whom ({options.attribute}, AUC)", *RECIPES], read, 3))


def _load(path: Path, prefix: str = "") -> tuple[dict[str, Tensor], dict[str, str] | None]:
    with safe_open(path, "pt") as file:
        names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118
        return {name: file.get_tensor(name) for name in names}, file.metadata()


if __name__ == "__main__":
    main()
