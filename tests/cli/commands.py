"""Short ways to call the command line and to see what it leaves."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

import pytest

from veilrec.cli import main
from veilrec.runs.integrity.checked import CHECKED


class Answer(NamedTuple):
    """What a command gave back."""

    code: int
    out: str
    err: str


def call(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Answer:
    """Run a command in this process."""
    capsys.readouterr()
    code = main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return Answer(code, said.out, said.err)


def tree(folder: Path) -> dict[str, str]:
    """Every file and folder below a folder, with a hash of what it holds, but for a memory of checksums."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else "folder"
        for path in sorted(folder.rglob("*"))
        if path.name != CHECKED
    }


def of_before(run: Path) -> None:
    """Make a run what the version before would have left."""
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    told = json.loads((run / "result.json").read_text(encoding="utf-8"))
    names = set(manifest["files"]) - {"result.json", "timing.jsonl"}
    files = {name: manifest["files"][name] for name in sorted(names)}
    (run / "result.json").write_text(json.dumps({**told, "version": 2, "files": files}), encoding="utf-8")
    (run / "manifest.json").unlink()
