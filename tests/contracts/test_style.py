"""Budgets, arrows and names, held by reading the code."""

import ast
from pathlib import Path

import pytest

import pellucid
from pellucid.tasks import TASKS

ROOT = Path(pellucid.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
LEVELS = (  # a room imports from its own level and those above it
    ("errors", "numerics", "rules"),
    ("geometry",),
    ("types",),
    ("config", "data", "augment", "models", "assign", "losses", "optim"),
    ("tasks",),
    ("zoo",),
    ("decode", "results", "draw", "shade"),
    ("evaluate", "predict"),
    ("export",),
    ("train", "report"),
    ("model",),
    ("ui",),
    ("__init__", "cli", "__main__"),
)
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
MAX_LINES, MAX_BODY, MAX_ARGUMENTS, MAX_NESTING = 400, 50, 8, 3
BLOCKS = (ast.For, ast.While, ast.If, ast.With, ast.Try)


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def functions(path: Path):
    return [node for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_rooms(path: Path):
    package = path.relative_to(ROOT).parts[:-1]
    module = tree(path)
    for_types = {
        child for node in ast.walk(module) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" for child in node.body
    }
    for node in ast.walk(module):
        if node in for_types:
            continue
        if isinstance(node, ast.ImportFrom) and node.level:
            parts = [*package[: len(package) - node.level + 1], *(node.module or "").split(".")]
            heads = [part for part in parts if part][:1]
            yield from heads or [alias.name for alias in node.names if alias.name in LEVEL]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pellucid":
            yield from node.module.split(".")[1:2]


def nesting(node: ast.AST, depth: int = 0) -> int:
    deepest = depth
    for child in ast.iter_child_nodes(node):
        chained = isinstance(node, ast.If) and isinstance(child, ast.If) and child in node.orelse  # elif
        deeper = depth + (isinstance(child, BLOCKS) and not chained)
        deepest = max(deepest, nesting(child, deeper))
    return deepest


def test_there_is_code_to_look_at():
    assert len(MODULES) > 40


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_module(path):
    assert len(path.read_text().splitlines()) <= MAX_LINES
    assert ast.get_docstring(tree(path)), "a module opens with a docstring"
    for function in functions(path):
        body = function.end_lineno - function.body[0].lineno + 1
        arguments = function.args
        names = [a.arg for a in arguments.posonlyargs + arguments.args + arguments.kwonlyargs]
        count = len([name for name in names if name not in ("self", "cls")])
        assert body <= MAX_BODY, f"{function.name} has {body} lines"
        assert count <= MAX_ARGUMENTS, f"{function.name} takes {count} arguments"
        assert nesting(function) <= MAX_NESTING, f"{function.name} nests {nesting(function)} deep"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_arrows_point_one_way(path):
    mine = room(path)
    assert mine in LEVEL, f"{mine} is not a room of the house"
    for other in imported_rooms(path):
        if other != "__version__" and mine != "__init__":
            assert LEVEL.get(other, 0) <= LEVEL[mine], f"{mine} imports {other}"


@pytest.mark.parametrize("path", [p for p in MODULES if room(p) != "tasks"], ids=lambda p: str(p.relative_to(ROOT)))
def test_no_comparison_with_a_task_name(path):
    names = {"detect", "segment", "pose", "obb", *TASKS}
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Compare):
            constants = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
            assert not constants & names, f"line {node.lineno}"
        if isinstance(node, ast.match_case):
            assert not names & {n.value for n in ast.walk(node.pattern) if isinstance(n, ast.Constant)}, f"line {node.pattern.lineno}"
