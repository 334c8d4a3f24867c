"""What the pages show works: commands are parsed, snippets run, the reference has every setting, the site builds."""

import logging
import re
from dataclasses import fields

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

import pellucid
from pellucid.cli import VERBS, find_verb, read_settings
from pellucid.config import merged
from pellucid.config.groups import GROUPS
from pellucid.data.samples import NAMES
from pellucid.tasks import TASKS
from pellucid.zoo import shipped_names

from .shown import ROOT, blocks, clone, lines, run, stand_ins, words_of

PAGES = sorted((ROOT / "docs").glob("*.md"))
NOT_RUN = {  # start of a line: why no test runs it
    "make demo": "makes an environment; the gate runs it for every task",
    "pellucid train model=detect-s data=shop.yaml device=0,1": "needs two GPUs",
}

SAID = {"extend": "'centre': 0.", "results": "MasksView("}  # by the snippet of a page


def commands():
    """`.venv/bin/pellucid ...` names what is there or made on the page; `pellucid ...` may name a file of the reader's."""
    return sorted({line for page in PAGES for line in lines(page) if words_of(line)})


def snippets():
    return [pytest.param(page, text, id=f"{page.stem}-{place}") for page in PAGES for place, text in enumerate(blocks(page, "python"))]


def test_there_is_something_to_hold():
    assert {
        "index",
        "formats",
        "doctor",
        "score-is-zero",
        "precision",
        "multi-gpu",
        "resume",
        "licence",
        "choices",
        "noise",
        "results",
        "extend",
    } <= {page.stem for page in PAGES}
    assert len(commands()) > 20
    assert len(snippets()) >= 2
    assert {words.split()[1] for words in commands()} >= {"train", "val", "predict", "data", "report", "ui"}


@pytest.mark.parametrize("line", commands())
def test_every_command_is_one(line):
    verb, rest = find_verb(words_of(line))
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
        for line in lines(page):
            made |= set(re.findall(r"\bname=([\w-]+)", line))
            used = re.findall(r"(?:model|run|resume|other)=runs/\w+/([\w-]+)", line)
            for name in used if line.startswith(".venv/") else []:
                named += 1
                assert name in made, f"{page.name}: {line}"
    assert named >= 4


@pytest.mark.parametrize("page", [page for page in PAGES if lines(page)], ids=lambda page: page.stem)
def test_the_commands_of_a_page_run_in_their_order(page, tmp_path, capsys):
    """Those that the README shows too are run by its test."""
    elsewhere = set(lines(ROOT / "README.md"))
    with clone(tmp_path):
        stand_ins(tmp_path)
        for line in lines(page):
            if line not in elsewhere and not line.startswith(tuple(NOT_RUN)):
                assert words_of(line), f"{line}: neither run nor listed in NOT_RUN"
                run(words_of(line), capsys)


def test_the_examples_of_the_help_run_in_their_order(tmp_path, capsys):
    with clone(tmp_path):
        stand_ins(tmp_path)
        for verb in VERBS.values():
            run(words_of(verb.example), capsys)
        made = ("runs/detect/train/report.html", "runs/detect/train/weights/best.onnx", "shop-coco", "shop-dealt", "tiles")
        assert [name for name in (*made, "runs/preview.jpg") if not (tmp_path / name).exists()] == []


def test_what_is_not_run_still_stands_there():
    shown = [line for page in PAGES for line in lines(page)]
    assert [start for start in NOT_RUN if not any(line.startswith(start) for line in shown)] == []
    assert [line for page in PAGES for block in blocks(page, "text") for line in block.splitlines() if line.startswith("pellucid ")] == []


@pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*GPU available")  # of a plain Trainer
@pytest.mark.parametrize(("page", "text"), snippets())
def test_every_snippet_runs(page, text, tmp_path, capsys):
    with clone(tmp_path):
        exec(compile(text, page.name, "exec"), {"__name__": "__main__"})
    assert SAID.get(page.stem, "") in capsys.readouterr().out


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
    assert all(f"<strong>{heading}</strong>" in cli for heading in GROUPS)
    python = (tmp_path / "reference" / "python.html").read_text()
    assert [name for name in pellucid.__all__ if name != "__version__" and f">{name}<" not in python] == []
    assert len(list(tmp_path.glob("*.html"))) >= len(PAGES)
    for page in tmp_path.rglob("*.html"):
        assert not re.search(r'(?:src|href)="(?:https?:)?//(?:fonts|unpkg|cdn)', page.read_text(encoding="utf-8")), page.name
