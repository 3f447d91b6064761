"""The card of a stored dataset, ``dataset.json``: what it is and what it holds, read without its events."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from veilrec.datasets.reading.archives import read
from veilrec.errors import BadInput, Corrupted

__all__: list[str] = []

CARD = "dataset.json"
FORMAT, VERSION = "veilrec dataset", 1
AGAIN = "import the dataset again"


def read_card(folder: Path) -> dict[str, Any]:
    """The description of a stored dataset, without its events: name, counts, classes, report."""
    path = folder / CARD
    try:
        card = json.loads(read(path).data)
    except (ValueError, RecursionError) as error:
        raise Corrupted(f"{path}: not JSON: {error}; {AGAIN}") from error
    if not isinstance(card, dict) or card.get("format") != FORMAT:
        raise BadInput(path, "not a dataset of veilrec", "name a folder that `veilrec data import` made")
    if card.get("version") != VERSION:
        raise BadInput(
            path, f"version {card.get('version')!r} of the format", "use the veilrec that wrote it"
        )
    if card.get("checksum") != checksum(card):
        raise Corrupted(f"{path}: does not match its checksum; {AGAIN}")
    return card


def checksum(card: Mapping[str, Any]) -> str:
    """The checksum of everything else on a card."""
    rest = {key: value for key, value in card.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
