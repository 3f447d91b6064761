"""A scan of every byte of a folder for vectors, in any type and order of bytes that somebody may write."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

KINDS = ("<f2", ">f2", "<f4", ">f4", "<f8", ">f8")
ENOUGH = 3  # different numbers in a row, which are no accident


def found_in(folder: Path, vectors: NDArray[np.floating]) -> list[str]:
    """``users.safetensors: row 3 as <f4``: where some of the numbers of a vector lie."""
    found = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        blob = path.read_bytes()
        for kind in KINDS:
            told = vectors.astype(kind)
            for row in range(len(told)):
                parts = [told[row, k : k + ENOUGH] for k in range(told.shape[1] - ENOUGH + 1)]
                telling = (part.tobytes() for part in parts if len(set(part.tolist())) == ENOUGH)
                if any(part in blob for part in telling):
                    found.append(f"{path.relative_to(folder)}: row {row} as {kind}")
    return found
