"""What the pages show works: commands are parsed, snippets run, the reference has every setting, the site builds."""

import logging
import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from mkdocs.commands.build import build
from mkdocs.config import load_config

import pellucid
from pellucid.cli import VERBS, find_verb, read_settings
from pellucid.config import merged
from pellucid.data.samples import NAMES
from pellucid.tasks import TASKS
from pellucid.zoo import shipped_names

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def blocks(page, language):
    return [text for _, kind, text in FENCE.findall(page.read_text(encoding="utf-8")) if kind == language]


def commands():
    """`.venv/bin/pellucid ...` names what is there or made on the page; `pellucid ...` may name a file of the reader's."""
    lines = [line.strip() for page in PAGES for block in blocks(page, "sh") for line in block.splitlines()]
    return sorted({line for line in lines if line.startswith((".venv/bin/pellucid ", "pellucid "))})


def snippets():
    return [pytest.param(page, text, id=f"{page.stem}-{place}") for page in PAGES for place, text in enumerate(blocks(page, "python"))]


def test_there_is_something_to_hold():
    assert {"index", "formats", "doctor", "score-is-zero", "precision", "multi-gpu", "resume", "licence", "choices", "noise"} <= {
        page.stem for page in PAGES
    }
    assert len(commands()) > 20
    assert len(snippets()) >= 2
    assert {words.split()[1] for words in commands()} >= {"train", "val", "predict", "data", "report", "ui"}


@pytest.mark.parametrize("line", commands())
def test_every_command_is_one(line):
    verb, rest = find_verb(shlex.split(line, comments=True)[1:])
    given = read_settings(verb, rest)
    assert len(given) == len(rest)
    merged(VERBS[verb].config(), given)
    if not line.startswith(".venv/"):
        return
    for key in {"model", "other"} & set(given):
        assert given[key] in shipped_names() or given[key].startswith("runs/") or re.fullmatch(rf"({'|'.join(TASKS)})-[nsmlx]", given[key])
    if "data" in given:
        assert given["data"] in NAMES
    if "source" in given:
        assert list(ROOT.glob(given["source"])), line


def test_folders_of_runs_are_made_before_they_are_named():
    """A command that takes runs/<task>/<name>/... comes after one on the same page that makes it."""
    named = 0
    for page in PAGES:
        made = set()
        for line in (line.strip() for block in blocks(page, "sh") for line in block.splitlines()):
            made |= set(re.findall(r"\bname=([\w-]+)", line))
            used = re.findall(r"(?:model|run|resume|other)=runs/\w+/([\w-]+)", line)
            for name in used if line.startswith(".venv/") else []:
                named += 1
                assert name in made, f"{page.name}: {line}"
    assert named >= 4


@pytest.mark.parametrize(("page", "text"), snippets())
def test_every_snippet_runs(page, text, tmp_path, monkeypatch, capsys):
    (tmp_path / "src").symlink_to(ROOT / "src")
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    exec(compile(text, page.name, "exec"), {"__name__": "__main__"})
    torch.set_num_threads(threads)
    capsys.readouterr()


def test_text_shown_as_a_command_is_one_too():
    shown = [line for page in PAGES for block in blocks(page, "text") for line in block.splitlines() if line.startswith("pellucid ")]
    assert shown
    for line in shown:
        verb, rest = find_verb(shlex.split(line)[1:])
        read_settings(verb, rest)


def test_the_site_builds_without_a_warning_and_has_every_setting(tmp_path):
    told = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: told.append(record.getMessage())
    logging.getLogger("mkdocs").addHandler(handler)
    try:
        config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path), strict=True)
        build(config)
    finally:
        logging.getLogger("mkdocs").removeHandler(handler)
    assert told == []
    cli = (tmp_path / "reference" / "cli.html").read_text()
    for name, verb in VERBS.items():
        assert verb.example in cli, name
        assert all(f"<code>{field.name}</code>" in cli for field in fields(verb.config))
    python = (tmp_path / "reference" / "python.html").read_text()
    assert [name for name in pellucid.__all__ if name != "__version__" and f">{name}<" not in python] == []
    assert len(list(tmp_path.glob("*.html"))) >= len(PAGES)
    for page in tmp_path.rglob("*.html"):
        assert not re.search(r'(?:src|href)="(?:https?:)?//(?:fonts|unpkg|cdn)', page.read_text(encoding="utf-8")), page.name
