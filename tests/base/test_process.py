"""A command ends with its exit code and one line, whatever its streams are and whenever a signal comes."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.forge import Forge, Order, Setting
from veilrec.base import process

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
FULL = "veilrec: error: standard output: cannot be written (No space left on device); make room"


class Failing(io.StringIO):
    """A stream that cannot be written, or not be brought to its end."""

    def __init__(self, number: int, at: str) -> None:
        super().__init__()
        self.number, self.at = number, at

    def write(self, text: str) -> int:
        return self._fail("write") or super().write(text)

    def flush(self) -> None:
        self._fail("flush")

    def _fail(self, name: str) -> int:
        if name == self.at:
            raise OSError(self.number, os.strerror(self.number))
        return 0


def speaks() -> int:
    print("a result")
    sys.stderr.write("progress\n")
    sys.stderr.flush()
    return 0


@pytest.mark.parametrize("at", ["write", "flush"])
@pytest.mark.parametrize(
    ("number", "code", "said"), [(errno.ENOSPC, 2, FULL), (errno.EPIPE, process.PIPE_CLOSED, "")]
)
def test_an_output_that_cannot_be_written_is_told(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    at: str,
    number: int,
    code: int,
    said: str,
) -> None:
    monkeypatch.setattr(sys, "stdout", Failing(number, at))
    assert process.run(speaks) == code
    told = capsys.readouterr().err.replace("progress\n", "")
    assert told.startswith(said)
    assert told.count("\n") == bool(said)


@pytest.mark.parametrize("at", ["write", "flush"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EPIPE, errno.EBADF])
def test_a_standard_error_that_cannot_be_written_takes_no_result_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], at: str, number: int
) -> None:
    monkeypatch.setattr(sys, "stderr", Failing(number, at))
    assert process.run(speaks) == 0
    assert capsys.readouterr().out == "a result\n"
    assert process.run(lambda: process.say("bad", 2)) == 2
    assert process.run(lambda: 1 // 0) == 1


def test_nothing_is_begun_without_an_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    done: list[int] = []
    assert process.run(lambda: done.append(1) or 0) == 2
    assert capsys.readouterr().err.startswith("veilrec: error: standard output: is closed; ")
    assert done == []
    assert sys.stdout is None


def closed(place: str) -> int:
    """In a process of its own: run a command with all three streams closed; it writes a file."""
    for number in (0, 2):
        os.close(number)
    sys.stdin = sys.stderr = None  # as Python has it then

    def work() -> int:
        assert sys.stdin.read() == ""
        with open(place, "w") as file:
            assert file.fileno() > 2
            sys.stderr.write("progress\n")
            os.write(2, b"what a library of C says")
            file.write("whole")
        return process.say("odd", 2)

    return process.run(work)


@pytest.mark.slow
@needs_fork
def test_no_file_takes_the_place_of_a_closed_stream(forge: Forge, tmp_path: Path) -> None:
    place = tmp_path / "file"
    ended = forge.run(Order("tests.base.test_process:closed", {"place": str(place)}))
    assert ended.code == 2
    assert place.read_text() == "whole"


@pytest.mark.parametrize("number", process.SIGNALS)
def test_a_signal_is_one_line(capsys: pytest.CaptureFixture[str], number: signal.Signals) -> None:
    before = [signal.getsignal(one) for one in process.SIGNALS]
    assert process.run(lambda: signal.raise_signal(number) or 0) == 130
    assert capsys.readouterr().err == "veilrec: error: interrupted\n"
    assert [signal.getsignal(one) for one in process.SIGNALS] == before


def test_a_signal_that_the_caller_wants_ignored_is_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert process.run(lambda: signal.raise_signal(signal.SIGINT) or 0) == 0
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_runs_a_command_as_well() -> None:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(process.run(lambda: 3)))
    thread.start()
    thread.join(timeout=10)
    assert codes == [3]


def imports(folder: str) -> int:
    sys.path.insert(0, folder)
    return process.run(lambda: int(__import__("interrupted") is None))


@needs_fork
@pytest.mark.parametrize("number", process.SIGNALS)
def test_a_signal_in_an_import_ends_it_at_once(forge: Forge, tmp_path: Path, number: signal.Signals) -> None:
    """Even where the import would have taken the exception for something of its own."""
    lines = "import signal", "try:", f"    signal.raise_signal({int(number)})", "except BaseException: pass"
    (tmp_path / "interrupted.py").write_text("\n".join([*lines, "open('after', 'w').close()"]))
    said = tmp_path / "said"
    setting = Setting(str(tmp_path), stderr=str(said))
    ended = forge.run(Order("tests.base.test_process:imports", {"folder": str(tmp_path)}, setting))
    assert (ended.code, said.read_text()) == (130, "veilrec: error: interrupted\n")
    assert not (tmp_path / "after").exists()


COMMANDS: dict[str, Callable[[Path], list[str]]] = {
    "list": lambda folder: ["-m", "veilrec", "list", "models"],
    "run": lambda folder: ["-m", "veilrec", "run", "missing.toml", "--out", str(folder / "run")],
    "node": lambda folder: ["-m", "veilrec.node", str(folder)],
}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("wait", [0.06, 0.1, 0.2, 0.4, 0.8])
def test_a_signal_at_the_start_is_one_line(command: str, wait: float, tmp_path: Path) -> None:
    """Before Python has begun with our first line, it is the system or Python that ends the process."""
    arguments = [sys.executable, *COMMANDS[command](tmp_path)]
    child = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    threading.Event().wait(wait)
    child.send_signal(signal.SIGTERM)
    out, said = child.communicate(timeout=60)
    if child.returncode == 130:
        assert (out, said) == (b"", b"veilrec: error: interrupted\n")
    else:
        assert child.returncode in (0, 2, -signal.SIGTERM)
        assert said.count(b"\n") <= 1
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["list", "--json"], ["--help"], ["--version"], ["list", "models"]])
def test_a_full_output_of_a_real_process(arguments: list[str]) -> None:
    """To its very end: Python must not complain once more when it closes its streams."""
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "veilrec", *arguments]
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert done.returncode == 2
    assert done.stderr.startswith(FULL)
    assert done.stderr.count("\n") == 1
