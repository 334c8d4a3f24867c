"""What the README shows works: its commands are read and run, its example too, and its tree is the tree."""

import re
import shlex
from pathlib import Path

import pytest
import torch

from pellucid.cli import VERBS, find_verb, main, read_settings
from pellucid.config import merged
from pellucid.tasks import TASKS
from pellucid.zoo import shipped_names

ROOT = Path(__file__).parents[1]
TILES = len(list((ROOT / "src" / "pellucid" / "data" / "samples" / "trees" / "images" / "val").iterdir()))
README = (ROOT / "README.md").read_text(encoding="utf-8")
SMALL = {"epochs": "1", "imgsz": "64"}  # what training may have in place of the README's own values
NEVER_ENDING = {"ui": "pellucid.ui.app"}  # verbs that run until Ctrl-C, and what they start
QUIET = {"train": ["plots=false", "workers=0", "device=cpu"], "val": ["plots=false", "workers=0", "device=cpu"], "predict": ["device=cpu"]}


def blocks(language):
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [text for kind, text in fences if kind == language]


def commands():
    """The words after `pellucid` of every command."""
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith(".venv/bin/pellucid ")]


def made_small(words):
    """The command with SMALL values for training, and with QUIET ones for settings that it does not name."""
    verb, rest = words[0], words[1:]
    if {"--help", "-h"} & set(words):
        return words
    pairs = [word.partition("=") for word in rest]
    if verb == "train":
        rest = [f"{key}={SMALL.get(key, value)}" for key, _, value in pairs]
    named = {key for key, _, _ in pairs}
    return [verb, *rest, *(word for word in QUIET.get(verb, []) if word.partition("=")[0] not in named and "resume" not in named)]


def test_there_is_something_to_run():
    assert len(commands()) >= 10
    assert TILES > 1
    assert {find_verb(words)[0] for words in commands() if words[0] in VERBS or words[0] == "data"} == set(VERBS)
    assert len(blocks("python")) == 1


def test_made_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"\bmake (\w+)", "\n".join(blocks("sh"))))
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
def place(tmp_path, monkeypatch):
    """An empty folder to be in, with `src` as in a clone."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    (tmp_path / "src").symlink_to(ROOT / "src")
    monkeypatch.chdir(tmp_path)
    for module in NEVER_ENDING.values():
        monkeypatch.setattr(f"{module}.serve", lambda config: (None, "http://127.0.0.1"))
        monkeypatch.setattr(f"{module}.wait", lambda page: None)
    yield tmp_path
    torch.set_num_threads(threads)


def test_the_commands_run_in_their_order(place, capsys):
    for words in commands():
        code = main(made_small(words))
        out, err = capsys.readouterr()
        if words[-1].startswith("resume="):  # the run is found, but one epoch leaves nothing to go on with
            assert (code, "has done all 1" in err) == (2, True), err
            continue
        assert code == 0, f"{words}: {err}"
        assert out
    folder = place / "runs" / "detect"
    assert (folder / "mine" / "weights" / "best.safetensors").is_file()
    assert len(list((folder / "predict").glob("*.jpg"))) == TILES


def test_the_example_runs(place, capsys):
    code = blocks("python")[0]
    assert len([line for line in code.splitlines() if line]) <= 6
    exec(compile(code, "README.md", "exec"), {})
    assert len(list((place / "runs" / "example").glob("*.jpg"))) == TILES
    assert "tensor" in capsys.readouterr().out


def test_the_tree_names_every_module():
    drawn, folders = set(), {0: "src/pellucid"}
    listing = next(block for block in blocks("") if block.startswith("src/pellucid/\n"))
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
