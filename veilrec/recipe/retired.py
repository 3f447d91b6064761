"""Retired options: recipes that earlier versions stored name them still, most often at what all do now."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from veilrec.errors import BadInput
from veilrec.recipe.settings import shown

__all__ = ["without_retired"]

SECTIONS: dict[str, dict[str, Any]] = {  # section → option → what holds now
    "evaluation": {"block": 64},
    "model": {"scopes": {}},
}
ENTRIES: dict[str, dict[str, Any]] = {  # the same by the name of an entry, in whatever list it stands
    "ColumnNorms": {"columns": -1, "attribute": ""},
    "DLG": {"enough": 0.01, "attribute": ""},
    "FDPMF": {"public_seed": 0},
    "FGERAI": {"numbers": "unit"},
    "FedLightGCN": {"edge_dropout": 0.0},
    "PARD": {
        "estimators_rest": False,
        "estimator_lr": 0.1,
        "estimator_momentum": 0.9,
        "estimator_clip": 5.0,
        "estimator_every": 1,
        "estimator_passes": 1,
        "estimator_dropout": 0.0,
        "distance": "norm",
    },
    "iDLG": {"attribute": ""},
}


def without_retired(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out retired options at the value that holds now.

    Raises:
        BadInput: Where such an option has another value, which can be had no longer.
    """
    found = copy.deepcopy(dict(raw))
    for where, table in _tables(found):
        gone = {**SECTIONS.get(where, {}), **ENTRIES.get(str(table.get("name")), {})}
        for name in [*gone.keys() & table.keys()]:
            if (given := table.pop(name)) != gone[name]:
                what = f"{shown(given)} can be had no longer; what holds is {shown(gone[name])}"
                raise BadInput(f"{where}.{name}", what, "leave it out")
    return found


def _tables(raw: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every table by its dotted name, as errors have it."""
    for section, value in raw.items():
        for place, table in enumerate(value if isinstance(value, list) else ()):
            if isinstance(table, dict):
                yield f"{section}.{place}", table
        if isinstance(value, dict):
            yield section, value
