"""``veilrec verify``: whether runs are, to the byte, what was written."""

from __future__ import annotations

from dataclasses import asdict

from veilrec.cli.arguments import Json, Runs, print_json
from veilrec.errors import Corrupted

__all__ = ["verify"]


def verify(runs: Runs, as_json: Json = False) -> None:
    """Hold every file of runs, finished or not, against its checksum; ends with 4 where one differs."""
    from veilrec.recipe.cells import cells_in
    from veilrec.runs.integrity.verify import verified

    found = []
    for place in (cell for run in runs for cell in cells_in(run)):
        found.append(verified(place))
        if not as_json:
            print(f"{place}: {found[-1].sentence}" if not found[-1].faults else found[-1].sentence)
    if as_json:
        print_json([{**asdict(one), "run": str(one.run), "faults": list(one.faults)} for one in found])
    damaged = [one for one in found if one.faults]
    if damaged:
        raise Corrupted(damaged[0].sentence)
