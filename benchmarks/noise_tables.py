"""``python -m benchmarks.noise_tables FILE``: how often the verdict claims a leak where there is none.

Each of 200 tables is noise of one of eight kinds, with labels that it does not tell; the seven families of
our own audit attack it. A claim needs a p-value below 5 % and an interval that leaves out chance, so that 10
are expected at most, and 18 or more would be seen once in a hundred times. FILE gets a line a table as soon
as it is done: the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from torch import Tensor

from benchmarks.harness import say
from veilrec.attack import Seen
from veilrec.attacks.attribute import AttributeInference
from veilrec.base.keys import Keys
from veilrec.interactions import id_hashes
from veilrec.lab.lab import audit
from veilrec.lab.presets import WORST
from veilrec.lab.threat import Threat
from veilrec.lab.trials import People

TABLES, MOST = 200, 17
SIZES = ((300, 8), (300, 64), (600, 16), (200, 128))  # users, columns
KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "normal": lambda rows: rows,
    "few directions": lambda rows: rows * torch.arange(1, rows.shape[1] + 1) ** -0.7,
    "long tails": lambda rows: rows / rows.roll(1, 0).abs().clamp(min=1e-2),
    "rows of unlike length": lambda rows: rows * rows[:, :1].exp(),
    "yes and no": lambda rows: (rows > 0.5).float(),
    "whole numbers": lambda rows: (2 * rows).round(),
    "many zeros": lambda rows: rows.clamp(min=0),
    "groups": lambda rows: rows + 3 * (torch.arange(len(rows)) % 5)[:, None] * (rows[:1] > 0),
}


def judged(number: int, repeats: int) -> dict[str, Any]:
    """What the audit of one table claims; the same for the same number, whoever asks when."""
    keys, began = Keys.seed(number).fold("noise table"), time.process_time()
    kind = list(KINDS)[number % len(KINDS)]
    users, width = SIZES[number // len(KINDS) % len(SIZES)]
    classes, known = (2, 3)[number // 5 % 2], (0.2, 0.8)[number // 3 % 2]
    rows = KINDS[kind](keys.normal(users, width))
    label = keys.fold("label").choose(-0.4 * torch.arange(classes).expand(users, -1))
    who = People({"coin": label}, id_hashes([f"{number}-{k}" for k in range(users)]))
    threat = Threat(known=known, repeats=repeats, by_part=False, membership=False)
    attacks = {"embeddings": AttributeInference("embeddings", classifiers=WORST)}
    found = audit(Seen.of_vectors(rows), who, threat, attacks, seed=number)
    entry = found["attributes"]["coin"]
    verdict = entry["verdict"]
    told = {"table": number, "repeats": repeats, "kind": kind, "users": users, "width": width}
    told |= {"classes": classes, "known": known, "attacker": verdict["attacker"]}
    p = next(one["p"] for one in entry["attackers"] if one["name"] == verdict["attacker"])
    told |= {"auc": verdict["auc"], "p": p, "leaning": verdict["leaning"], "shuffled": verdict["shuffled"]}
    doubts = [one["kind"] for one in found["soundness"]]
    return {**told, "soundness": doubts, "cpu": round(time.process_time() - began, 2)}


def kept(path: Path, repeats: int) -> dict[int, dict[str, Any]]:
    """The tables that are done; a last line that was cut short is taken out of the file."""
    whole, cut, _ = (path.read_text() if path.is_file() else "").rpartition("\n")
    if path.is_file():
        path.write_text(whole + cut)
    found = [json.loads(line) for line in whole.splitlines()]
    return {one["table"]: one for one in found if one["repeats"] == repeats}


def report(done: Sequence[dict[str, Any]]) -> str:
    """The claims, and what they are expected to be."""
    claims = [one for one in done if one["leaning"] != "none"]
    p_low = sum(one["p"] < 0.05 for one in done)
    apart = sum(abs(one["auc"]["value"] - 0.5) for one in done) / len(done)
    floor = sum(one["shuffled"]["value"] - 0.5 for one in done) / len(done)
    which = ", ".join(f"{one['table']} ({one['attacker'].split('/')[-1]})" for one in claims) or "none"
    below = sum(one["leaning"] == "below" for one in claims)
    lines = [
        f"{len(claims)} of {len(done)} tables of noise are claimed to leak ({below} turned round): {which}",
        f"at most {MOST} of {TABLES} are allowed; p is below 5 % in {p_low}",
        f"|AUC - 0.5| {apart:.4f} on average; by the floor of shuffled labels {floor:.4f}",
        f"near copies, ids or answers are seen in {sum(bool(one['soundness']) for one in done)}",
        f"CPU seconds: {sum(one['cpu'] for one in done):.0f}",
    ]
    return "\n".join(lines)


def main(given: Sequence[str] | None = None) -> int:
    """Judge the tables that are not done yet, and report; 1 where there are too many claims."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="JSON lines, one a table")
    parser.add_argument("--tables", type=int, default=TABLES)
    parser.add_argument("--repeats", type=int, default=1, help="draws of known users")
    options = parser.parse_args(given)
    torch.set_num_threads(1)
    done = kept(options.file, options.repeats)
    with options.file.open("a") as file:
        for number in range(options.tables):
            if number in done:
                continue
            done[number] = judged(number, options.repeats)
            file.write(json.dumps(done[number]) + "\n")
            file.flush()
            os.fsync(file.fileno())
            say(f"{len(done)} of {options.tables}: {done[number]['attacker']} {done[number]['leaning']}")
    wanted = [done[number] for number in sorted(done) if number < options.tables]
    print(report(wanted))
    return int(sum(one["leaning"] != "none" for one in wanted) > MOST * options.tables / TABLES)


if __name__ == "__main__":
    raise SystemExit(main())
