"""The command line as a whole: help at once, exit codes, one line for what goes wrong."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.cli.commands import call
from veilrec import __version__, cli, errors
from veilrec.base import process
from veilrec.errors import BadInput, ClientFailed, Corrupted, Interrupted, VeilrecError

HEAVY = {"torch", "numpy", "pandas", "scipy", "sklearn", "safetensors"}
LOADED = """
import sys
from veilrec.cli import main

code = main({})
print(*sys.modules, file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["run", "--help"], ["data", "--help"], []])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0
    assert done.stdout
    loaded = {name.split(".")[0] for name in done.stderr.split()}
    assert not HEAVY & loaded


def test_as_a_module() -> None:
    arguments = [sys.executable, "-m", "veilrec", "--version"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == f"veilrec {__version__}\n"


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    overview = call(capsys, "--help").out
    for name in ("demo", "run", "evaluate", "recommend", "list", "data", "config"):
        assert name in overview
        assert call(capsys, name, "--help").code == 0
    assert call(capsys).out == overview, "no command at all asks for help"


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (BadInput("a.toml", "broken", "mend it", line=3), 2, "veilrec: error: a.toml:3: broken; mend it\n"),
        (Corrupted("x: cut off;\nrestore it"), 4, "veilrec: error: x: cut off; restore it\n"),
        (Interrupted("stopped; continue"), 130, "veilrec: error: stopped; continue\n"),
        (KeyboardInterrupt(), 130, "veilrec: error: interrupted\n"),
        (
            PermissionError(13, "Permission denied", "runs/x"),
            2,
            "veilrec: error: runs/x: Permission denied; ",
        ),
    ],
)
def test_what_goes_wrong_is_one_line_and_a_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    line: str,
) -> None:
    def fail(arguments: object) -> int:
        raise error

    monkeypatch.setattr(cli, "_invoke", fail)
    assert cli.main([]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(line)
    assert said.err.count("\n") == 1


def test_a_bug_is_shown_in_full(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(arguments: object) -> int:
        raise RuntimeError("of ours")

    monkeypatch.setattr(cli, "_invoke", fail)
    assert cli.main([]) == 1
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "RuntimeError: of ours" in said
    assert "bug" in said.splitlines()[-1]


@pytest.mark.parametrize(
    ("cause", "code"), [(BadInput("plan.lr", "too high", "lower it"), 2), (ValueError("x"), 1)]
)
def test_a_failed_device_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cause: Exception, code: int
) -> None:
    def fail(arguments: object) -> int:
        raise ClientFailed("u7", 3, "training", cause) from cause

    monkeypatch.setattr(cli, "_invoke", fail)
    assert cli.main([]) == code
    said = capsys.readouterr().err
    assert "user u7, round 3, training" in said.splitlines()[-1]
    assert ("Traceback" in said or "ValueError" in said) == (code == 1)
    assert (said.count("\n") == 1) == (code == 2)


@pytest.mark.parametrize("inside", [False, True], ids=["anywhere", "in a device"])
@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."),
        RuntimeError("can't start new thread"),
        OSError(12, "Cannot allocate memory", "runs/x"),
    ],
    ids=["python", "gpu", "cublas", "cpu", "thread", "system"],
)
def test_no_memory_is_one_line_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, inside: bool
) -> None:
    def fail(arguments: object) -> int:
        if inside:
            raise ClientFailed("u7", 3, "training", error) from error
        raise error

    monkeypatch.setattr(cli, "_invoke", fail)
    assert cli.main([]) == 3
    said = capsys.readouterr().err
    where = "round 3, training: " if inside else ""
    assert said.startswith(f"veilrec: error: {where}out of memory; end what else runs there")
    assert said.count("\n") == 1


@pytest.mark.parametrize("words", [["--help"], pytest.param(["list", "--json"], marks=pytest.mark.slow)])
def test_a_closed_pipe_is_no_failure_of_ours(words: list[str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "veilrec", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 141
    assert said == ""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_a_stopped_run_goes_on_to_the_same_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "a.toml"
    recipe.write_text(
        '[data]\nname = "synthetic"\nusers = 60\n[model]\ndim = 4\n'
        "[plan]\nrounds = 60\nevaluate_every = 1\n[evaluation]\ncandidates = 9\n"
    )
    arguments = ["run", str(recipe), "--out", str(tmp_path / "x")]
    process = subprocess.Popen(
        [sys.executable, "-m", "veilrec", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("rounds 2/"):
            process.send_signal(signal.SIGINT)
            break
    out, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert "--resume" in said.splitlines()[-1]
    resumed = json.loads(call(capsys, *arguments, "--resume", "--json", "-q").out)
    whole = json.loads(call(capsys, "run", recipe, "--out", tmp_path / "y", "--json", "-q").out)
    assert resumed["rounds"] == whole["rounds"] == 60
    assert resumed["utility"] == whole["utility"]
    assert resumed["traffic"] == whole["traffic"]


def test_a_name_that_is_near_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Both parsers, one in the other, have the idea (B9)."""
    for arguments, near in ((["rnu"], "run"), (["data", "imprt"], "import")):
        answer = call(capsys, *arguments)
        assert answer.code == 2
        assert answer.err.count(f"Did you mean '{near}'?") == 1


def test_a_folder_is_told_by_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And not by that of a file that is not in it; what was begun is told from what is no run (B12)."""
    monkeypatch.chdir(tmp_path)
    assert call(capsys, "report", ".").err == (
        "veilrec: error: .: not a finished run: there is no result in it; name a run directory\n"
    )
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "recipe.toml").touch()
    assert call(capsys, "report", "begun").err == (
        "veilrec: error: begun: not a finished run: it was begun; finish it with `veilrec run --resume`\n"
    )


def test_every_exit_code_of_the_guide_can_come() -> None:
    """Each error that has a code of its own is raised somewhere (B8)."""
    root = Path(__file__).parents[2]
    guide = (root / "docs" / "guide.md").read_text(encoding="utf-8")
    table = guide[guide.index("## Exit codes") :].split("\n\n")[1]
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    source = "".join(path.read_text(encoding="utf-8") for path in (root / "veilrec").rglob("*.py"))
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, VeilrecError)
    ]
    raised = {kind.code for kind in kinds if re.search(rf"(raise|return|say\() ?{kind.__name__}\(", source)}
    assert codes == {0, VeilrecError.code, process.PIPE_CLOSED, *(kind.code for kind in kinds)}
    assert raised >= codes - {0, VeilrecError.code, process.PIPE_CLOSED}
