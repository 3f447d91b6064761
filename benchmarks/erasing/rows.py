"""Rows: what cells found, as a small table that is committed, and means over trainings."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from scipy import stats

from benchmarks.erasing.readers import FAMILIES, SHARES

__all__ = ["KEPT", "Row", "Some", "alone", "chosen", "packed", "read_packed", "results", "rows_of"]

KEPT = ("ndcg@10/99", "hr@10/99", "ndcg@10/all", "hr@10/all")


class Row(NamedTuple):
    """One attribute of one cell: what was read of it, and what it cost.

    Attributes:
        part: Of requests the reader, ``naive`` or ``adaptive``; of lists what was looked at.
        way: The AUC of the worst reader; ``worst`` is as far from 1/2, above it.
        auc: By share of known labels and family, means over the splits.
        useful: By metric, ``change`` and ``half`` in percent of what it was.
        difference: What is read off the difference of vectors, mirrored above 1/2.
    """

    kind: str
    dataset: str
    model: str
    seed: int
    eraser: str
    target: str
    attribute: str
    part: str
    worst: float
    reader: str
    way: float
    floor: float
    auc: tuple[float, ...]
    useful: tuple[tuple[float, float], ...]
    difference: float
    seconds: float


def rows_of(found: Iterable[dict[str, Any]]) -> Iterator[Row]:
    """The rows of a file of results."""
    for one in found:
        yield from {"erase": _erased, "requests": _asked, "stream": _streamed, "lists": _listed}.get(
            one["kind"], lambda _: []
        )(one)


def _head(one: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(one[name] for name in ("kind", "dataset", "model", "seed", "eraser", "target"))


def _useful(one: dict[str, Any]) -> tuple[tuple[float, float], ...]:
    found = [one["useful"][name] for name in KEPT]
    return tuple((100 * row["change"] / row["before"], 100 * row["half"] / row["before"]) for row in found)


def _erased(one: dict[str, Any]) -> Iterator[Row]:
    for name, read in one["reads"].items():
        auc = tuple(mean(read["auc"][str(share)][family]) for share in SHARES for family in FAMILIES)
        apart = [abs(value - 0.5) for value in one["difference"].get(name, {}).values()]
        told = (read["worst"], read["reader"], read["way"], read["floor"], auc, _useful(one))
        yield Row(*_head(one), name, "", *told, 0.5 + max(apart, default=0.0), one["seconds"])


def _asked(one: dict[str, Any]) -> Iterator[Row]:
    for way, read in one["requests"].items():
        told = (read["worst"], read["reader"], read["way"], read["floor"])
        yield Row(*_head(one), one["target"], way, *told, (), (), math.nan, math.nan)


def _streamed(one: dict[str, Any]) -> Iterator[Row]:
    nothing = (math.nan, "", math.nan, math.nan, ())
    yield Row(*_head(one), one["target"], "", *nothing, _useful(one), math.nan, one["longest"])


def _listed(one: dict[str, Any]) -> Iterator[Row]:
    for part, auc in one["lists"].items():
        way = mean(auc)
        told = (0.5 + abs(way - 0.5), FAMILIES[0], way, math.nan)
        yield Row(*_head(one), one["target"], part, *told, (), (), math.nan, math.nan)


def packed(rows: Iterable[Row], path: Path) -> None:
    """Write rows as a small table."""
    with path.open("w", encoding="utf-8", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow(Row._fields)
        for row in sorted(rows):
            pairs = [f"{change:.2f}±{half:.2f}" for change, half in row.useful]
            numbers = {
                n: f"{getattr(row, n):.4g}" for n in ("worst", "way", "floor", "difference", "seconds")
            }
            auc = " ".join(f"{one:.3f}" for one in row.auc)
            table.writerow(row._replace(auc=auc, useful=" ".join(pairs), **numbers))  # type: ignore[arg-type]


def read_packed(path: Path) -> list[Row]:
    """The rows of a small table."""
    found = []
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            numbers = {n: float(row[n]) for n in ("worst", "way", "floor", "difference", "seconds")}
            pairs = tuple(tuple(map(float, one.split("±"))) for one in row["useful"].split())
            auc = tuple(map(float, row["auc"].split()))
            whole = {**row, **numbers, "seed": int(row["seed"]), "auc": auc, "useful": pairs}
            found.append(Row(**whole))  # type: ignore[arg-type]
    return found


def results(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of results that ended well."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if "error" not in row]


class Some(NamedTuple):
    """Some rows of one eraser and attribute, a row a training."""

    rows: Sequence[Row]

    def mean(self, of: Callable[[Row], float]) -> float:
        """The mean of something over trainings."""
        return mean(map(of, self.rows))

    def half(self, of: Callable[[Row], float]) -> float:
        """Half the 95 % interval of that mean; infinite of one training."""
        found = [of(row) for row in self.rows]
        if len(found) < 2:
            return math.inf
        wide = float(stats.t.ppf(0.975, len(found) - 1))
        return wide * stdev(found) / len(found) ** 0.5


def chosen(rows: Sequence[Row], **wanted: str) -> Some:
    """The rows that have some values."""
    return Some([row for row in rows if all(getattr(row, key) == value for key, value in wanted.items())])


def alone(rows: Sequence[Row], dataset: str, model: str, eraser: str, attribute: str) -> Some:
    """An attribute that was erased alone; what knows no attribute was run once for all."""
    blind = eraser == "original" or eraser.startswith("noise")
    target = "all" if blind else attribute
    return chosen(
        rows, kind="erase", dataset=dataset, model=model, eraser=eraser, target=target, attribute=attribute
    )
