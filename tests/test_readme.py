"""What the README shows works: its commands are read and run, its example too, and its tree is the tree."""

import re

import pytest

from pellucid.cli import VERBS, find_verb, read_settings
from pellucid.config import merged
from pellucid.tasks import TASKS
from pellucid.zoo import shipped_names

from .shown import ROOT, blocks, clone, lines, run, words_of

TILES = len(list((ROOT / "src" / "pellucid" / "data" / "samples" / "trees" / "images" / "val").iterdir()))
PAGE = ROOT / "README.md"
README = PAGE.read_text(encoding="utf-8")


def commands():
    """The words after `pellucid` of every command."""
    return [words for line in lines(PAGE) if (words := words_of(line))]


def test_there_is_something_to_run():
    assert len(commands()) >= 10
    assert TILES > 1
    assert {find_verb(words)[0] for words in commands() if words[0] in VERBS or words[0] == "data"} == set(VERBS)
    assert len(blocks(PAGE, "python")) == 1


def test_made_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"\bmake (\w+)", "\n".join(blocks(PAGE, "sh"))))
    assert targets >= {"demo", "test"}
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_setting_is_known(words):
    if "--help" not in words:
        verb, rest = find_verb(words)
        given = read_settings(verb, rest)
        assert len(given) == len(rest)
        merged(VERBS[verb].config(), given)


def test_every_shipped_name_ships():
    named = set(re.findall(rf"\b[a-z]\w+-(?:{'|'.join(TASKS)})-[nsmlx]\b", README))
    assert named
    assert named <= set(shipped_names())


@pytest.fixture
def place(tmp_path):
    with clone(tmp_path):
        yield tmp_path


def test_the_commands_run_in_their_order(place, capsys):
    for words in commands():
        run(words, capsys)
    folder = place / "runs" / "detect"
    assert (folder / "mine" / "weights" / "best.safetensors").is_file()
    assert len(list((folder / "predict").glob("*.jpg"))) == TILES


def test_the_example_runs(place, capsys):
    code = blocks(PAGE, "python")[0]
    assert len([line for line in code.splitlines() if line]) <= 6
    exec(compile(code, "README.md", "exec"), {})
    assert len(list((place / "runs" / "example").glob("*.jpg"))) == TILES
    assert "tensor" in capsys.readouterr().out


def test_the_tree_names_every_module():
    drawn, folders = set(), {0: "src/pellucid"}
    listing = next(block for block in blocks(PAGE, "") if block.startswith("src/pellucid/\n"))
    for line in listing.splitlines()[1:]:
        name = line.split()[0]
        depth = (len(line) - len(line.lstrip())) // 2
        parent = folders[depth - 1] + "/" if depth else ""
        folders[depth] = f"{parent}{name.rstrip('/')}"
        assert (ROOT / folders[depth]).exists(), line
        drawn.add(folders[depth])
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("*.py") if not path.name.startswith("__")}
    assert modules <= drawn, f"not in the README: {sorted(modules - drawn)}"


def test_pictures_and_files_that_are_named_exist():
    targets = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert targets
    assert [target for target in targets if not (ROOT / target).is_file()] == []
    assert all((ROOT / name).is_file() for name in ("LICENSE", "NOTICE", "CONTRIBUTING.md", "CHANGELOG.md"))


def test_no_path_of_a_machine_is_shown():
    for name in ("README.md", "CONTRIBUTING.md", "Makefile", ".ci/run", "demo/run.py", ".pre-commit-config.yaml"):
        assert not re.search(r"(?<![\w.])/(home|work|root|opt)/", (ROOT / name).read_text()), name
