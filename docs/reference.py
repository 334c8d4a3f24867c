"""Pages of the reference, written from the code when the site is built: every verb with its settings, every public name."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, Field
from pathlib import Path
from typing import Any

import docstring_parser
from mkdocs.structure.files import File

import pellucid
from pellucid.cli import VERBS
from pellucid.config import grouped
from pellucid.rules import words_of_type

RESULT = ("masks", "keypoints", "rboxes", "boxes", "orig_shape", "path", "plot", "save", "save_txt", "save_crop", "to_dict", "to_json")
METHODS = {"Model": ("train", "validate", "predict", "export", "info", "names"), "Result": (*RESULT, "to_coco", "to_supervision", "to_df")}


def on_config(config: Any) -> Any:
    """Add pages that stand beside the others without a place in mkdocs.yml."""
    if (Path(config["docs_dir"]) / "export.md").is_file() and "export.md" not in str(config["nav"]):
        config["nav"].insert(3, {"Export": "export.md"})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Put the two pages among the files of the site."""
    for name, content in (("cli", cli_page()), ("python", python_page())):
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    return files


def cli_page() -> str:
    """Every verb: what it does, an example, its settings."""
    parts = [
        "# Command line\n",
        "`key=value` and `--key value` are the same; `config=FILE.yaml` reads settings from a file.",
        "Results go to stdout, progress to stderr. Exit codes: 0 done, 1 findings or failure, 2 usage, 3 unreadable data.\n",
    ]
    for name, verb in VERBS.items():
        parts += [f"## {name}\n", f"{verb.about}\n", f"```text\n{verb.example}\n```\n", settings_of(verb.config)]
    return "\n".join(parts)


def settings_of(kind: type) -> str:
    """Tables of the fields of a settings class, each with the line that stands under it, under the headings of the help."""
    help_of = {part.arg_name: part.description for part in docstring_parser.parse_from_object(kind).params}
    parts = []
    for heading, part in grouped(kind).items():
        rows = [
            f"| `{field.name}` | {_cell(words_of_type(str(field.type)))} | {default_of(field)} | {_cell(help_of[field.name])} |"
            for field in part
        ]
        parts += [f"**{heading}**\n"] * bool(heading) + ["| setting | value | default | |", "| --- | --- | --- | --- |", *rows, ""]
    return "\n".join(parts)


def default_of(field: Field[Any]) -> str:
    value = None if field.default is MISSING else field.default
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None or value == "" else f"`{value}`"


def python_page() -> str:
    """Every public name, and the methods of the two classes that users hold."""
    parts = [
        "# Python\n",
        "```python\nfrom pellucid import Model, open_dataset\n```\n",
        "Shapes and units: [results in Python](../results.md).\n",
    ]
    for name in pellucid.__all__:
        thing = getattr(pellucid, name)
        if name == "__version__":
            continue
        parts += [
            f"## {name}\n",
            described(thing) if name != "TASKS" else f"What is particular to each task, by name: {', '.join(thing)}.\n",
        ]
        for method in METHODS.get(name, ()):
            if member := getattr(thing, method, None):
                parts += [f"### {name}.{method}\n", described(member)]
    return "\n".join(parts)


def described(thing: Any) -> str:
    """The signature, where there is one, and the docstring."""
    target = thing.fget if isinstance(thing, property) else thing
    shown = f"```text\n{target.__name__}{inspect.signature(target)}\n```\n\n" if inspect.isfunction(target) and target is thing else ""
    return f"{shown}{inspect.getdoc(target) or ''}\n".replace("<", "&lt;")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
