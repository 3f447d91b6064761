"""Sealed files: JSON that holds a checksum of itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from veilrec.base.files import Digest, read_json, write_json
from veilrec.base.limits.schema import Check, Wrong, table, text, whole
from veilrec.errors import BadInput, Corrupted

__all__ = ["CHECKSUMS", "DIGEST", "NAME", "digests", "plain", "read_sealed", "write_sealed"]

SHA256 = text(64, "[0-9a-f]{64}")
DIGEST = table({"sha256": SHA256, "bytes": whole()})
NAME = text(200, r"(?!\.{1,2}$)[^/\\\0\ud800-\udfff]+")  # of something in the folder itself
CHECKSUMS = table(rest=DIGEST, most=64, keys=NAME)
MOST = 1 << 20  # bytes


def write_sealed(path: Path, version: int, body: Mapping[str, Any]) -> None:
    """Write a sealed file."""
    told = {"version": version, **body}
    write_json(path, {**told, "sha256": _checksum(told)})


def read_sealed(path: Path, version: int, shape: Mapping[str, Check]) -> dict[str, Any]:
    """The body of a sealed file of a version, with what it must hold.

    Raises:
        BadInput: Where it is of another version.
        Corrupted: Where it is not what was written.
    """
    told = read_json(path, MOST)
    if told.pop("sha256", None) != _checksum(told):
        raise Corrupted(f"{path}: does not match its checksum; restore the file")
    if told.get("version") != version:
        raise BadInput(
            path, f"written as version {told.get('version')}", f"this veilrec reads version {version}"
        )
    try:
        table({"version": whole(), **shape})(told, "")
    except Wrong as wrong:
        raise Corrupted(f"{path}: {wrong}; restore the file") from wrong
    return told


def plain(files: Mapping[str, Digest]) -> dict[str, dict[str, Any]]:
    """Checksums by name, for JSON."""
    return {name: entry._asdict() for name, entry in sorted(files.items())}


def digests(told: Mapping[str, Mapping[str, Any]]) -> dict[str, Digest]:
    """The reverse of `plain`."""
    return {name: Digest(**entry) for name, entry in told.items()}


def _checksum(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
