"""Commands and snippets that a page shows, made small enough for a test and run as a reader would run them."""

import os
import re
import shlex
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from pellucid.cli import main
from pellucid.data.convert import convert
from pellucid.data.samples import sample_path
from pellucid.tasks import TASKS
from pellucid.zoo import weights

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
SMALL = {  # what a verb may have in place of the page's own values
    "train": {"epochs": "1", "imgsz": "64"},
    "export": {"imgsz": "64"},
    "bench": {"imgsz": "64"},
}
QUIET = {  # for settings that the page does not name
    "train": ["plots=false", "workers=0", "device=cpu"],
    "val": ["plots=false", "workers=0", "device=cpu", "imgsz=64"],
    "predict": ["device=cpu"],
    "export": ["imgsz=64"],
}
NEVER_ENDING = "pellucid.ui.app"  # runs until Ctrl-C


def blocks(page, language):
    """The texts of the fences of one language."""
    return [text for _, kind, text in FENCE.findall(page.read_text(encoding="utf-8")) if kind == language]


def lines(page):
    """All lines of the shell blocks, in their order."""
    return [line.strip() for block in blocks(page, "sh") for line in block.splitlines() if line.strip()]


def words_of(line):
    """The words after `pellucid`; none where the line is another command."""
    words = shlex.split(line, comments=True)
    return words[1:] if words[0] in ("pellucid", ".venv/bin/pellucid") else []


def made_small(words):
    """The command with SMALL values, and with QUIET ones for settings that it does not name."""
    verb, rest = words[0], words[1:]
    if {"--help", "-h"} & set(words):
        return words
    pairs = [word.partition("=") for word in rest]
    small = SMALL.get(verb, {})
    rest = [f"{key}={small.get(key, value)}" if equals else key for key, equals, value in pairs]
    named = {key for key, _, _ in pairs}
    return [verb, *rest, *(word for word in QUIET.get(verb, []) if word.partition("=")[0] not in named and "resume" not in named)]


@contextmanager
def clone(folder):
    """Be in an empty folder with `src` as in a clone, where no page is served."""
    (folder / "src").symlink_to(ROOT / "src")
    before = Path.cwd()
    os.chdir(folder)
    try:
        with patch.multiple(NEVER_ENDING, serve=lambda config: (None, "http://127.0.0.1"), wait=lambda page: None):
            yield folder
    finally:
        os.chdir(before)


def stand_ins(folder):
    """What a reader would have before reading: photos, data sets of boxes and of turned boxes, and weights of an own run."""
    (folder / "photos").mkdir()
    for picture in sorted((sample_path("trees").parent / "images" / "val").iterdir())[:2]:
        (folder / "photos" / picture.name).symlink_to(picture)
    (folder / "shop.yaml").write_text(f"path: {sample_path('trees').parent}\ntrain: images/train\nval: images/val\nnames: [tree]\n")
    convert(sample_path("nuclei-obb"), folder / "dota", "dota", TASKS["obb"]().needs)
    own = folder / "runs" / "detect" / "mine" / "weights"
    own.mkdir(parents=True)
    (own / "best.safetensors").symlink_to(Path(weights.__file__).with_name("trees-detect-n.safetensors"))


def run(words, capsys):
    """Run a command made small; its output. A run that is resumed must be found, but one epoch leaves nothing to go on with."""
    code = main(made_small(words))
    out, err = capsys.readouterr()
    if any(word.startswith("resume=") for word in words):
        assert (code, "has done all 1" in err) == (2, True), err
        return err
    assert code == 0, f"{words}: {err}"
    assert out
    return out
