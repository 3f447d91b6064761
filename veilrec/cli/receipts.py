"""Receipts of erasures as pages, for ``veilrec report``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from veilrec.errors import BadInput, Corrupted

__all__ = ["receipt_in", "receipts_of", "write_receipt"]

NAME = "receipt.json"  # of the receipt in a run that was changed on request


def receipt_in(places: list[Path]) -> dict[str, Any] | None:
    """The receipt that the first place is; None where it is a folder, or a file of another kind."""
    from veilrec.base.files import read_json
    from veilrec.report.receipts.page import is_receipt

    try:
        told = read_json(places[0]) if places and places[0].is_file() else None
    except Corrupted:
        return None  # whoever reads it as an audit says what is wrong with it
    return told if is_receipt(told) else None


def receipts_of(places: list[Path]) -> dict[str, Any]:
    """The receipts that lie in runs, by the name of the run."""
    found = {str(place): receipt_in([place / NAME]) for place in places}
    return {name: told for name, told in found.items() if told is not None}


def write_receipt(told: dict[str, Any], places: list[Path], out: Path, title: str, csv: Path | None) -> None:
    """The page of one receipt."""
    from veilrec.base.files import atomic
    from veilrec.base.locks import writer_of
    from veilrec.report.receipts.page import receipt_page

    if len(places) > 1:
        raise BadInput(places[1], "a receipt has a page of its own", "name one receipt")
    if csv is not None:
        raise BadInput("--csv", "a receipt is its own numbers, as JSON", "leave it out")
    if out.resolve() == places[0].resolve():
        raise BadInput("--out", "names the receipt itself", "name another file")
    with writer_of(out):
        text = receipt_page(told, places[0], title)
        with atomic(out) as sink:
            sink.write(text.encode())
