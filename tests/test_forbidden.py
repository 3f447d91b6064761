"""What no file of the package may do: unpickle, run text as code, seed the process, hide an error, sprawl."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "veilrec"
FILES = sorted(PACKAGE.rglob("*.py"))
ALARM, LONGEST_FILE, LONGEST_FUNCTION = 300, 400, 60  # a file above the alarm is named, and nothing fails
TOO_COMPLEX = 18
STILL_COMPLEX: set[str] = set()  # the list only shrinks

FORBIDDEN = {  # by full name, whatever it was imported as
    r"(builtins\.)?(eval|exec)": "text is never run as code",
    r"(c?_?[pP]ickle|dill|cloudpickle|joblib|marshal|shelve)(\..*)?": "pickles run code",
    r"torch\.(load|save|serialization\..*)": "pickles run code: use safetensors",
    r"yaml\.(load|load_all|unsafe_load|full_load)": "YAML can build objects: use TOML",
    r"os\.(system|popen)|subprocess\.get(status)?output": "no shell",
    r"random(\..*)?": "randomness comes from veilrec.base.keys.Keys",
    r"numpy\.random(\..*)?": "randomness comes from veilrec.base.keys.Keys",
    r"torch\.((cuda|random|mps)\.)?(manual_seed(_all)?|seed(_all)?|set_rng_state)": "no global seed",
    r"torch\.(rand|randn|randint)(_like)?|torch\.(randperm|normal|multinomial|bernoulli)": (
        "randomness comes from veilrec.base.keys.Keys"
    ),
}


@lru_cache(maxsize=2)
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


def aliases(tree: ast.Module) -> dict[str, str]:
    """What each imported name of a file stands for: ``np`` → ``numpy``, ``load`` → ``torch.load``."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                known[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return known


def full_name(node: ast.AST, known: dict[str, str]) -> str:
    """``np.random.seed`` → ``numpy.random.seed``; empty where the head was not imported."""
    match node:
        case ast.Name(id=name):
            return known.get(name, name if name in {"eval", "exec", "__import__"} else "")
        case ast.Attribute(value=value, attr=name):
            head = full_name(value, known)
            return f"{head}.{name}" if head else ""
    return ""


def reason(name: str) -> str:
    """Why a full name is forbidden; empty if it is not."""
    return next((why for pattern, why in FORBIDDEN.items() if re.fullmatch(pattern, name)), "")


def call_fault(node: ast.Call, known: dict[str, str]) -> str:
    """What is wrong with the arguments of a call; empty if nothing is."""
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
    if given.get("shell", "False") != "False":
        return "no shell"
    if full_name(node.func, known) == "numpy.load" and given.get("allow_pickle", "False") != "False":
        return "pickles run code"
    return "files are written whole, through no link: see veilrec.base.files" if writes(node, given) else ""


def writes(node: ast.Call, given: Mapping[str | None, str]) -> bool:
    """Whether a call opens a file to write by its name, and with nothing to keep it from following links."""
    called = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
    if called in {"write_text", "write_bytes"}:
        return True
    behind = node.args[isinstance(node.func, ast.Name) :]  # `open` itself is given the path first
    places = [*map(ast.unparse, behind), given.get("mode", "")]
    modes = [place for place in places if re.fullmatch(r"['\"][rwaxbt+]{1,3}['\"]", place)]
    return called == "open" and "opener" not in given and any({*mode} & {*"wax+"} for mode in modes)


def hides(node: ast.ExceptHandler) -> bool:
    """Whether a handler takes any error and says nothing about it."""
    anything = node.type is None or {"Exception", "BaseException"} & set(
        re.findall(r"\w+", ast.unparse(node.type))
    )
    silent = all(
        isinstance(statement, ast.Pass | ast.Continue) or is_ellipsis(statement) for statement in node.body
    )
    return bool(anything) and silent


def is_ellipsis(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def faults(source: str) -> list[str]:
    """Each forbidden thing in a file, as ``line: name: why``."""
    tree = parsed(source)
    known, found = aliases(tree), []
    for node in ast.walk(tree):
        names: list[str] = []
        why = ""
        match node:
            case ast.Import():
                names = [alias.name for alias in node.names]
            case ast.ImportFrom(module=str(module), level=0):
                names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
            case ast.Name() | ast.Attribute():
                names = [full_name(node, known)]
            case ast.Call():
                why = call_fault(node, known)
            case ast.ExceptHandler() if hides(node):
                why = "an error is never swallowed"
        line = getattr(node, "lineno", 0)
        found += [f"{line}: {name}: {reason(name)}" for name in names if reason(name)]
        found += [f"{line}: {why}"] if why else []
    return found


def functions(source: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function of a file, also those inside of others."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def too_long(source: str) -> list[str]:
    """The file, and each function in it, that is longer than the limits."""
    lines = len(source.splitlines())
    found = [f"{lines} lines, {LONGEST_FILE} allowed"] if lines > LONGEST_FILE else []
    for node in functions(source):
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if length > LONGEST_FUNCTION:
            found.append(f"{node.lineno}: {node.name}: {length} lines, {LONGEST_FUNCTION} allowed")
    return found


def complexity(function: ast.AST) -> int:
    """The ways through a function, as McCabe counts them: one, and one more for each place where it forks.

    A function inside of it is counted by itself.
    """
    ways, within = 1, list(ast.iter_child_nodes(function))
    while within:
        node = within.pop()
        ways += forks(node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            within += ast.iter_child_nodes(node)
    return ways


def forks(node: ast.AST) -> int:
    """How many ways a node adds; a comprehension is a loop."""
    match node:
        case ast.If() | ast.IfExp() | ast.For() | ast.AsyncFor() | ast.While() | ast.ExceptHandler():
            return 1
        case ast.match_case():
            return 1
        case ast.BoolOp(values=values):
            return len(values) - 1
        case ast.comprehension(ifs=conditions):
            return 1 + len(conditions)
    return 0


def too_complex(source: str) -> dict[str, int]:
    """The functions of a file with too many ways through them."""
    ways = {function.name: complexity(function) for function in functions(source)}
    return {name: count for name, count in ways.items() if count >= TOO_COMPLEX}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_forbidden(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert faults(source) == []
    assert too_long(source) == []


def test_no_function_has_too_many_ways_through_it() -> None:
    found = {
        f"{path.relative_to(PACKAGE).as_posix()}: {name}"
        for path in FILES
        for name in too_complex(path.read_text(encoding="utf-8"))
    }
    assert found - STILL_COMPLEX == set()
    assert STILL_COMPLEX - found == set(), "simple enough by now: take them off the list"


def twice(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Classes that have a name in common, and the files in which they stand."""
    found = defaultdict[str, list[str]](list)
    for file, source in sources.items():
        for node in ast.walk(parsed(source)):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(file)
    return {name: files for name, files in found.items() if len(files) > 1}


def test_every_class_has_a_name_of_its_own() -> None:
    """Whoever looks for one finds it, and not another."""
    assert twice({str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in FILES}) == {}
    assert twice({"a.py": "class Seen: ...", "b.py": "class Seen: ..."}) == {"Seen": ["a.py", "b.py"]}


def test_long_files_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing fails: where a file is cut is decided by what is in it, not by where the lines run out."""
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    with capsys.disabled():
        for path, count in lines.items():
            if count > ALARM:
                print(f"\nlong: {path.relative_to(PACKAGE)}, {count} lines; {LONGEST_FILE} are too many")


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "import cloudpickle as cp",
        "import joblib\njoblib.load('x')",
        "import torch\ntorch.load('x')",
        "import torch as t\nt.load('x', weights_only=True)",
        "from torch import load\nload('x')",
        "from torch import load as read\nread('x')",
        "import torch\nread = torch.load",
        "import torch.serialization\ntorch.serialization.load('x')",
        "import torch\ndef f():\n    torch.save({}, 'x')",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "from numpy import load\nload('x', allow_pickle=trust)",
        "import yaml\nyaml.load('x', Loader=yaml.SafeLoader)",
        "eval('1')",
        "list(map(eval, 'x'))",
        "exec('x = 1')",
        "import builtins\nbuiltins.exec('x')",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "import os\nos.system('ls')",
        "import torch\ntorch.manual_seed(0)",
        "import torch\ntorch.cuda.manual_seed_all(0)",
        "from torch import manual_seed as fix\nfix(0)",
        "import torch\ntorch.randn(3)",
        "import numpy as np\nnp.random.seed(0)",
        "import numpy as np\nnp.random.default_rng(0)",
        "from numpy import random\nrandom.shuffle(x)",
        "from numpy.random import seed\nseed(0)",
        "import random\nrandom.seed(0)",
        "from random import shuffle",
        "path.write_text('x')",
        "Path('x').write_bytes(b'')",
        "open('x', 'w')",
        "path.open('ab')",
        "path.open(mode='rb+')",
        "try:\n    f()\nexcept Exception:\n    pass",
        "try:\n    f()\nexcept:\n    ...",
        "for x in y:\n    try:\n        f()\n    except (ValueError, BaseException):\n        continue",
    ],
)
def test_planted_faults_are_caught(source: str) -> None:
    assert faults(source) != []


@pytest.mark.parametrize(
    "source",
    [
        "model.eval()",
        "open('w')",
        "path.open('rb')",
        "open('x', 'xb', opener=safely)",
        "os.fdopen(descriptor, 'wb')",
        "from safetensors.torch import load\nload(b'')",
        "import tomllib\ntomllib.load(file)",
        "import json\njson.load(file)",
        "import numpy as np\nnp.load('x')\nnp.load('x', allow_pickle=False)",
        "import subprocess\nsubprocess.run(['ls'], shell=False, timeout=9)",
        "import torch\ngenerator = torch.Generator()\ngenerator.manual_seed(0)",
        "keys.normal(3)",
        "from secrets import randbits\nrandbits(64)",
        "try:\n    f()\nexcept FileNotFoundError:\n    pass",
        "try:\n    f()\nexcept Exception as cause:\n    raise ValueError from cause",
    ],
)
def test_innocent_lines_pass(source: str) -> None:
    assert faults(source) == []


def test_sizes_are_measured() -> None:
    function = "def f():\n" + "    x = 1\n" * (LONGEST_FUNCTION - 1)
    assert too_long(function) == []
    assert too_long(function + "    x = 1\n") != []
    assert too_long("x = 1\n" * LONGEST_FILE) == []
    assert too_long("x = 1\n" * (LONGEST_FILE + 1)) != []


@pytest.mark.parametrize(
    ("body", "ways"),
    [
        ("pass", 1),
        ("with a: pass", 1),
        ("if a: pass\n elif b: pass\n else: pass", 3),
        ("for x in a:\n  while b: pass", 3),
        ("try: pass\n except A: pass\n except B: pass\n finally: pass", 3),
        ("return a and b or not c", 3),
        ("return [x for x in a if x if b]", 4),
        ("return a if b else {x: y for x in a for y in b}", 4),
        ("match a:\n  case 1: pass\n  case 2 | 3: pass", 3),
        ("def g():\n  if a: pass", 1),
        ("return lambda: a if b else c", 2),
    ],
)
def test_ways_are_counted(body: str, ways: int) -> None:
    (function, *_) = functions(f"def f():\n {body}\n")
    assert complexity(function) == ways


def test_planted_ways_are_found() -> None:
    function = "def f():\n" + "    if a: pass\n" * (TOO_COMPLEX - 1)
    assert too_complex(function) == {"f": TOO_COMPLEX}
    assert too_complex(function.replace("if a: pass", "pass", 1)) == {}
