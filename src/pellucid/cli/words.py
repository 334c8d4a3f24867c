"""Words of a command line, or a YAML file with settings, as checked values; the help of a verb."""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ..config import check_key, grouped
from ..errors import MissingFileError, UsageError
from ..rules import choices_of, words_of_type
from . import about, data, use
from .verb import Verb

VERBS: dict[str, Verb] = {**use.VERBS, **data.VERBS, **about.VERBS}

YES, NO = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


def find_verb(words: list[str]) -> tuple[str, list[str]]:
    """The verb, of one word or two, and what follows it; UsageError with the nearest verb."""
    for count in (2, 1):
        name = " ".join(words[:count])
        if name in VERBS:
            return name, words[count:]
    name = " ".join(word for word in words[:2] if "=" not in word and not word.startswith("-")) or words[0]
    within = [verb for verb in VERBS if verb.startswith(f"{words[0]} ")]
    near = (
        get_close_matches(name, VERBS, 1, 0.7)
        or within
        or get_close_matches(name, VERBS, 1, 0.4)
        or get_close_matches(words[0], VERBS, 1, 0.4)
    )
    hint = f"did you mean {' or '.join(near)}?" if near else f"verbs: {', '.join(VERBS)}"
    raise UsageError(f"unknown verb {name!r}: {hint}")


def read_settings(name: str, words: list[str]) -> dict[str, Any]:
    """The settings that were given, in a file and then in words, checked for name and kind."""
    kind = VERBS[name].config
    given = pairs_of(kind, words)
    if "config" in given:
        given = {**pairs_of_file(kind, given.pop("config")), **given}
    parser = parser_of(name)
    values = {}
    for key, text in given.items():
        values[key] = read_value(parser, kind, key, text)
    return values


def pairs_of(kind: type, words: list[str]) -> dict[str, str]:
    """{key: text} of `key=value`, `--key value`, `--key=value` and, for yes-or-no settings, `--key`."""
    switches = {field.name for field in fields(kind) if field.type == "bool"}
    pairs: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        key, equals, text = word.removeprefix("--").partition("=")
        key = key.replace("-", "_")
        if not equals and not word.startswith("--"):
            hint = f"{word}=true" if key in switches else f"for instance {fields(kind)[0].name}={word}"
            raise UsageError(f"expected key=value or --key value, got {word!r}; write {hint}")
        if key != "config":
            check_key(kind, key)
        if not equals:
            bare = key in switches and (not rest or rest[0].lower() not in YES + NO)
            if not bare and not rest:
                raise UsageError(f"{key}: expected a value after --{key}, got nothing; write {key}=...")
            text = "true" if bare else rest.pop(0)
        if key in pairs:
            raise UsageError(f"{key}: expected one value, got {pairs[key]!r} and {text!r}; leave one of them out")
        pairs[key] = text
    return pairs


def pairs_of_file(kind: type, path: str) -> dict[str, str]:
    """{key: text} of a YAML file with settings."""
    import yaml

    if not Path(path).is_file():
        raise MissingFileError(f"config: expected a YAML file, found none at {path}; check the path")
    try:
        text = Path(path).read_text(encoding="utf-8")
        content, node = yaml.safe_load(text), yaml.compose(text, yaml.SafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"{path}: expected YAML with settings, got something else ({' '.join(str(error).split())}); mend the file"
        ) from None
    if not isinstance(content, dict):
        raise UsageError(f"{path}: expected lines like 'epochs: 50', got {type(content).__name__}; mend the file")
    _refuse_twins(path, node)
    for key in content:
        try:
            check_key(kind, str(key))
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
    return {str(key): value if isinstance(value, str) else json.dumps(value, default=str) for key, value in content.items()}


def _refuse_twins(path: str, node: Any) -> None:
    """Raise UsageError with both lines where a YAML file has a setting twice."""
    lines: dict[str, int] = {}
    for key, _ in node.value:
        line = key.start_mark.line + 1
        if key.value in lines:
            raise UsageError(
                f"{path}:{line}: expected one line with {key.value}, got another in line {lines[key.value]}; remove one of them"
            )
        lines[key.value] = line


def read_value(parser: Any, kind: type, key: str, text: str) -> Any:
    """`text` as a value of the field's kind; UsageError in our words."""
    import yaml

    field = next(field for field in fields(kind) if field.name == key)
    if field.type == "bool":
        text = "true" if text.lower() in YES else "false" if text.lower() in NO else text
    if "None" in str(field.type) and text.lower() in ("none", "null"):
        text = "null"
    several = str(field.type).startswith("tuple") and text != "null"
    if several and not text.startswith("["):
        parts = [part.strip() for part in text.split(",")]
        text = json.dumps([int(part) if re.fullmatch(r"-?\d+", part) else part for part in parts])
    try:
        if several and any(type(part) not in (int, str) for part in yaml.safe_load(text)):
            raise ValueError(text)
        return getattr(parser.parse_args([f"--{key}={text}"]), key)
    except Exception:
        raise UsageError(f"{key}: expected {words_of_type(str(field.type))}, got {text!r}; see {parser.prog} --help") from None


NUMBERS = {"int": "N", "float": "X"}  # what the help has in the place of a number


class HelpLines(argparse.HelpFormatter):
    """The line under each field, and its default where there is one, as it is written on the command line."""

    def _get_help_string(self, action: argparse.Action) -> str:
        shown = action.default is not None and action.default not in ("", argparse.SUPPRESS)
        default = str(action.default).lower() if isinstance(action.default, bool) else "%(default)s"
        return (action.help or "") + (f" (default: {default})" if shown else "")


def parser_of(name: str) -> Any:
    """A jsonargparse parser of a verb's settings; its help shows the line under each field, under headings where there are many."""
    import jsonargparse

    jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)
    verb = VERBS[name]
    parser = jsonargparse.ArgumentParser(
        prog=f"pellucid {name}",
        usage=f"pellucid {name} [key=value | --key value]...",
        description=verb.about,
        epilog=f"example: {verb.example}",
        exit_on_error=False,
        formatter_class=HelpLines,
    )
    parser.add_class_arguments(verb.config, as_group=False)
    kinds = {field.name: str(field.type) for field in fields(verb.config)}
    for action in parser._actions:
        if (kind := kinds.get(action.dest, "")).startswith("Literal"):  # where none is a choice too, argparse would not tell them
            action.metavar = "{" + ",".join(choices_of(kind)) + "}"
        if kind == "bool | None":
            action.metavar = "{true,false,none}"
        action.metavar = NUMBERS.get(kind.removesuffix(" | None"), action.metavar)
    parser.add_argument("--config", type=str, help="A YAML file with any of these settings; words on the command line win.")
    _put_under_headings(parser, verb.config)
    return parser


def _put_under_headings(parser: Any, config: type) -> None:
    """Move the settings, in the order of `grouped`, from the one section of the help to sections of their own."""
    actions = {action.dest: action for action in parser._actions}
    for heading, part in grouped(config).items():
        if heading:
            section = parser.add_argument_group(heading)
            for field in part:
                parser._optionals._group_actions.remove(actions[field.name])
                section._group_actions.append(actions[field.name])
