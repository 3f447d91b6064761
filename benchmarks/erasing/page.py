"""The page of erasers: what is printed of the small table, block by block."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from statistics import mean

from benchmarks.erasing.cells import ATTRIBUTES, ERASERS, QUICK
from benchmarks.erasing.readers import FAMILIES, SHARES
from benchmarks.erasing.rows import Row, Some, alone, chosen

__all__ = ["NAMES", "filled"]

BLOCK = re.compile(r"<!-- erasers: ([\w -]+) -->\n.*?<!-- end -->", re.DOTALL)
NAMES = {"ml-100k": "ML-100K", "ml-1m": "ML-1M"}
BARS = {"gender": 0.04, "age": 0.05, "occupation": 0.03}  # of Lethe on ML-1M, above the floor


def main_table(rows: Sequence[Row], dataset: str, model: str) -> str:
    """Worst AUC, floor and cost in NDCG of each eraser, attribute by attribute."""
    head = [
        "Eraser",
        *(f"{name}: {what}" for name in ATTRIBUTES for what in ("worst", "floor", "NDCG@10")),
        "CPU s",
    ]
    lines = [_line(head), _line(["---", *["---:"] * (len(head) - 1)])]
    for eraser in ERASERS:
        cells, seconds = [], 0.0
        for name in ATTRIBUTES:
            found = alone(rows, dataset, model, eraser, name)
            if not found.rows:
                cells += ["", "", ""]
                continue
            cells += [
                f"{found.mean(lambda row: row.worst):.3f}",
                f"{found.mean(lambda row: row.floor):.3f}",
                percent(found.mean(lambda row: row.useful[0][0])),
            ]
            seconds = max(seconds, found.mean(lambda row: row.seconds))
        if any(cells):
            lines.append(_line([eraser, *cells, f"{seconds:.2f}"]))
    return "\n".join(lines)


def joint_table(rows: Sequence[Row]) -> str:
    """Three attributes erased at once."""
    head = [
        "Data",
        "Eraser",
        "trainings",
        *(f"{name}: worst (floor)" for name in ATTRIBUTES),
        "NDCG@10",
        "HR@10",
    ]
    lines = [_line(head), _line(["---", "---", *["---:"] * (len(head) - 2)])]
    for dataset in NAMES:
        for eraser in ERASERS:
            found = {
                name: chosen(
                    rows,
                    kind="erase",
                    dataset=dataset,
                    model="fedmf",
                    eraser=eraser,
                    target="all",
                    attribute=name,
                )
                for name in ATTRIBUTES
            }
            if (
                eraser.startswith("noise")
                or eraser == "original"
                or not all(one.rows for one in found.values())
            ):
                continue
            told = [
                f"{one.mean(lambda r: r.worst):.3f} ({one.mean(lambda r: r.floor):.3f})"
                for one in found.values()
            ]
            first = found[ATTRIBUTES[0]]
            cost = [percent(first.mean(lambda r, k=k: r.useful[k][0])) for k in (0, 1)]  # type: ignore[misc]
            lines.append(_line([NAMES[dataset], eraser, str(len(first.rows)), *told, *cost]))
    return "\n".join(lines)


def family_table(rows: Sequence[Row], dataset: str, attribute: str) -> str:
    """Every family's AUC with a fifth and with four fifths of all labels known."""
    head = ["Eraser", *(f"{family} {share:.0%}" for share in SHARES for family in FAMILIES)]
    lines = [_line(head), _line(["---", *["---:"] * (len(head) - 1)])]
    for eraser in ERASERS:
        found = alone(rows, dataset, "fedmf", eraser, attribute)
        if found.rows:
            each = [mean(row.auc[place] for row in found.rows) for place in range(len(head) - 1)]
            lines.append(_line([eraser, *(f"{one:.2f}" for one in each)]))
    return "\n".join(lines)


def bar_table(rows: Sequence[Row]) -> str:
    """How far Lethe ends above the floor, beside what was aimed at."""
    head = [
        "Data",
        "Model",
        "Attribute",
        "trainings",
        "worst − floor",
        "95 % interval",
        "bar",
        "NDCG@10",
        "exact transport",
    ]
    lines = [_line(head), _line(["---", "---", "---", *["---:"] * (len(head) - 3)])]
    for dataset in NAMES:
        for model in ("fedmf", "fedncf"):
            for name in ATTRIBUTES:
                found = alone(rows, dataset, model, "Lethe", name)
                exact = alone(rows, dataset, model, "GaussianTransport", name)
                if found.rows:
                    bar = f"{BARS[name]:.2f}" if (dataset, model) == ("ml-1m", "fedmf") else ""
                    told = [*_spread(found, lambda row: row.worst - row.floor), bar]
                    cost = [
                        percent(one.mean(lambda r: r.useful[0][0])) if one.rows else ""
                        for one in (found, exact)
                    ]
                    kind = {"fedmf": "FedMF", "fedncf": "FedNCF"}[model]
                    lines.append(_line([NAMES[dataset], kind, name, str(len(found.rows)), *told, *cost]))
    return "\n".join(lines)


def _spread(some: Some, of: Callable[[Row], float]) -> list[str]:
    middle, half = some.mean(of), some.half(of)
    ends = "" if math.isinf(half) else f"{signed(middle - half)} to {signed(middle + half)}"
    return [signed(middle), ends]


def request_table(rows: Sequence[Row]) -> str:
    """A tenth of the users asks, and everybody else's labels are known."""
    head = ["Data", "Eraser", "trainings", "naive reader", "adaptive reader", "floor"]
    lines = [_line(head), _line(["---", "---", *["---:"] * 4])]
    for dataset in NAMES:
        for eraser in ERASERS:
            found = chosen(rows, kind="requests", dataset=dataset, eraser=eraser)
            ways = [Some([row for row in found.rows if row.part == part]) for part in ("naive", "adaptive")]
            if found.rows:
                told = [_turned(one) if one.rows else "" for one in ways]
                floor = f"{found.mean(lambda row: row.floor):.3f}"
                lines.append(_line([NAMES[dataset], eraser, str(len(ways[0].rows)), *told, floor]))
    return "\n".join(lines)


def _turned(some: Some) -> str:
    return f"{some.mean(lambda row: row.worst):.3f}"


def difference_table(rows: Sequence[Row]) -> str:
    """What is read off the difference of old and new vectors, off old ones alone, and off lists."""
    head = [
        "Data",
        "Eraser",
        *(f"{name}, difference" for name in ATTRIBUTES),
        "lists with seen",
        "lists as shown",
        "history",
    ]
    lines = [_line(head), _line(["---", "---", *["---:"] * 6])]
    for dataset in NAMES:
        for eraser in ERASERS:
            apart = [alone(rows, dataset, "fedmf", eraser, name) for name in ATTRIBUTES]
            lists = [
                chosen(rows, kind="lists", dataset=dataset, eraser=eraser, part=p)
                for p in ("with seen", "as shown", "history")
            ]
            of = _copy if eraser == "original" else _apart
            told = [f"{one.mean(of):.3f}" if one.rows else "" for one in apart]
            told += [f"{one.mean(lambda r: r.way):.3f}" if one.rows else "" for one in lists]
            if any(told):
                lines.append(_line([NAMES[dataset], eraser, *told]))
    return "\n".join(lines)


def _apart(row: Row) -> float:
    return row.difference


def _copy(row: Row) -> float:
    """What the readers of differences find in the old vectors alone, a fifth of the labels known."""
    found = dict(zip(FAMILIES, row.auc[: len(FAMILIES)], strict=True))
    return 0.5 + max(abs(found[name] - 0.5) for name in QUICK)


def stream_table(rows: Sequence[Row]) -> str:
    """A hundred requests, one after the other."""
    head = ["Data", "trainings", "NDCG@10 of all users", "HR@10 of all users", "longest request, CPU s"]
    lines = [_line(head), _line(["---", *["---:"] * 4])]
    for dataset in NAMES:
        found = chosen(rows, kind="stream", dataset=dataset)
        if found.rows:
            drift = [percent(found.mean(lambda r, k=k: r.useful[k][0])) for k in (0, 1)]  # type: ignore[misc]
            longest = max(row.seconds for row in found.rows)
            lines.append(_line([NAMES[dataset], str(len(found.rows)), *drift, f"{longest:.2f}"]))
    return "\n".join(lines)


def filled(text: str, rows: Sequence[Row]) -> str:
    """A page with its tables as the results have them now."""
    made: dict[str, Callable[[], str]] = {
        "bars": lambda: bar_table(rows),
        "joint": lambda: joint_table(rows),
        "requests": lambda: request_table(rows),
        "difference": lambda: difference_table(rows),
        "stream": lambda: stream_table(rows),
    }
    for dataset in NAMES:
        for model in ("fedmf", "fedncf"):
            made[f"{dataset} {model}"] = lambda d=dataset, m=model: main_table(rows, d, m)  # type: ignore[misc]
        made[f"families {dataset}"] = lambda d=dataset: family_table(rows, d, "gender")  # type: ignore[misc]
    return BLOCK.sub(lambda m: f"<!-- erasers: {m[1]} -->\n\n{made[m[1]]()}\n\n<!-- end -->", text)


def percent(value: float) -> str:
    """A change in percent, with a real minus."""
    return f"{value:+.1f} %".replace("-", "−")


def signed(value: float) -> str:
    """A difference, with a real minus."""
    return f"{value:+.3f}".replace("-", "−")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
