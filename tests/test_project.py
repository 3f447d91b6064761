"""The files around the package agree with each other, and name no machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SETTINGS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT: dict[str, Any] = SETTINGS["project"]
FOLDERS = "home|mnt|opt|root|work|Users"
MACHINE = re.compile(rf"(?<![\w.~:/-])/(?:{FOLDERS})/\w")
REGISTRY = re.compile(r"(?:pypi|pythonhosted|npmjs|anaconda)\.org|download\.pytorch\.org")
CPU_ONLY = (
    "https://download.pytorch." + "org/whl/cpu"
)  # public, and the only way to torch without CUDA on Linux
MAY_NAME_IT = ("README.md", "Dockerfile")
BINARY = {".gz", ".ico", ".png", ".zip"}


def package_of(requirement: str) -> str:
    """``scikit-learn>=1.5; …`` → ``scikit-learn``, in the one spelling that pip compares."""
    name = re.match(r"[\w.-]+", requirement)
    assert name, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def pins() -> dict[str, str]:
    """What constraints.txt says: package → version."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(pin(line) for line in lines if line and not line.startswith("#"))


def pin(line: str) -> tuple[str, str]:
    """One line, which must be a plain exact pin: no path, no address, no option, no local version."""
    assert re.fullmatch(r"[A-Za-z0-9][\w.-]*==[0-9][0-9A-Za-z.]*", line), line
    name, version = line.split("==")
    return package_of(name), version


def kept_files() -> list[Path]:
    """Every file that is in the repository, or would be after ``git add``."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a git checkout: there is no list of tracked files")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    files = [ROOT / name for name in listed.split("\0") if name]
    return [path for path in files if path.is_file() and path.suffix not in BINARY]


@pytest.mark.parametrize("extra", ["", "dev", "docs"])
def test_every_direct_dependency_is_pinned(extra: str) -> None:
    wanted = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    assert {package_of(requirement) for requirement in wanted} <= pins().keys()


@pytest.mark.parametrize(
    "line", ["-e .", "./veilrec", "torch>=2", "torch==2.13.0+cpu", "x @ https://x.org/x.whl"]
)
def test_other_lines_are_no_pins(line: str) -> None:
    with pytest.raises(AssertionError):
        pin(line)


def test_pins_leave_room_for_flower() -> None:
    """Flower 1.41 takes typer below 0.21 and rich below 15: whoever has it installs veilrec beside it."""
    version = {name: tuple(int(part) for part in pins()[name].split(".")) for name in ("typer", "rich")}
    assert version["typer"] < (0, 21)
    assert version["rich"] < (15,)


def test_a_wheel_brings_what_reproduces_a_paper_and_no_results() -> None:
    """Each paper's recipes and numbers, and one page about it; long results stay in the repository."""
    wheel = SETTINGS["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["only-include"] == ["veilrec", "papers"]
    assert wheel["sources"] == {"papers": "veilrec/papers"}
    left = {path for pattern in wheel["exclude"] for path in ROOT.glob(pattern.removeprefix("/"))}
    for folder in {path.parent for path in (ROOT / "papers").glob("*/paper.toml")}:
        taken = {path.name for path in folder.iterdir() if path not in left}
        recipes = tomllib.loads((folder / "paper.toml").read_text(encoding="utf-8"))["recipes"].values()
        needed = {"README.md", "paper.toml", "reported.csv", *(recipe["file"] for recipe in recipes)}
        assert needed <= taken
        assert all(name in needed or name.endswith(".toml") for name in taken)
        assert any(path.parent == folder for path in left)


def test_readme_opens_with_the_two_commands() -> None:
    blocks = re.findall(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert blocks[0].splitlines() == ["make demo", "make test"]
    assert blocks[1].splitlines() == ["pip install .", "veilrec demo"]


def test_continuous_integration_runs_the_same_commands() -> None:
    script = ROOT / ".ci" / "run"
    lines = script.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    assert "set -euo pipefail" in lines
    commands = [match for line in lines if (match := re.fullmatch(r"timeout (\d+) (make .+)", line))]
    assert [command[2] for command in commands] == [
        "make check",
        "make test BUDGET=--strict",
        'make reliability ARGUMENTS="--kills 1 --pairs 1 --few"',
    ]
    assert re.search(r"^  timeout \d+ make docs$", "\n".join(lines), re.MULTILINE)
    assert os.access(script, os.X_OK)


def test_continuous_integration_ends_within_half_an_hour() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert sum(map(int, re.findall(r"\btimeout (\d+)", script))) <= 1800
    assert not re.search(r"^ *make ", script, re.MULTILINE)


def test_other_systems_and_pythons_are_those_that_are_promised() -> None:
    text = (ROOT / ".github" / "workflows" / "checks.yml").read_text(encoding="utf-8")
    promised = [name.rsplit(" ", 1)[1] for name in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", name)]
    quoted = ", ".join(f'"{one}"' for one in promised)
    assert f"python: [{quoted}]" in text
    assert all(f"{system}-latest" in text for system in ("ubuntu", "macos", "windows"))
    assert "run: .ci/run" in text
    assert "permissions:\n  contents: read" in text


def test_the_lowest_dependencies_are_the_floors() -> None:
    command = [sys.executable, str(ROOT / ".github" / "lowest.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    told = dict(line.split("==") for line in done.stdout.splitlines())
    assert {package_of(name) for name in told} == {package_of(one) for one in PROJECT["dependencies"]}
    assert told["numpy"] == "2.0"


def test_the_container_copies_what_is_there() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    copied = [word for line in re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE) for word in line.split()]
    assert {"pyproject.toml", "veilrec", "papers"} <= set(copied)
    assert all((ROOT / name).exists() for name in copied)
    assert '\nCMD ["demo"' in text


def test_every_target_that_is_named_exists() -> None:
    targets = set(
        re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    texts = [
        (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md", ".ci/run")
    ]
    named = {name for text in texts for name in re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE)}
    assert {"check", "demo", "test"} <= named <= targets | {"help"}


def test_versions_agree() -> None:
    assert f'\n__version__ = "{PROJECT["version"]}"\n' in (ROOT / "veilrec" / "__init__.py").read_text(
        encoding="utf-8"
    )
    assert f"\nversion: {PROJECT['version']}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "\n## [Unreleased]\n" in changes
    assert f"\n## [{PROJECT['version']}] - " in changes


def test_links_between_documents_lead_somewhere() -> None:
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_no_machine_and_no_registry_is_named() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in kept_files()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if MACHINE.search(told := line.replace(CPU_ONLY, "") if path.name in MAY_NAME_IT else line)
        or REGISTRY.search(told)
    ]
    assert found == []


@pytest.mark.parametrize("host", ["pypi", "files.pythonhosted", "download.pytorch", "registry.npmjs"])
def test_registries_are_recognised(host: str) -> None:
    assert REGISTRY.search(f"https://{host}.org/simple")


@pytest.mark.parametrize("folder", FOLDERS.split("|"))
def test_machine_paths_are_recognised(folder: str) -> None:
    assert MACHINE.search(f"open('/{folder}/x')")
    assert not MACHINE.search(f"see https://example.org/{folder}/x and docs/{folder}/x")
