"""Class names that a format can hold: those by which its reader finds every class again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from xml.etree import ElementTree

from ...errors import DataError
from ..index import DataSet
from ..readers.dota import Names, Row, parse_row
from ..readers.labelme import NO_CLASS


def check_names(to: str, dataset: DataSet) -> None:
    """DataError where two different names become one in the format `to`, or one cannot be written in it."""
    if to not in _SAID:
        return
    names = list(dict.fromkeys(dataset.names))
    lines = [_line(name) for name in names]
    find = Names(lines).find if to == "dota" else dict(zip(lines, range(len(lines)), strict=True)).get
    for place, name in enumerate(names):
        found = find(_SAID[to](name)) if lines[place] else None
        twin = lines.index(lines[place]) if found == place else found
        if twin is None or (to == "labelme" and lines[place] in NO_CLASS):
            raise DataError(f"{dataset.source}: expected class names that {to} can hold, got {name!r}; rename it, or write coco.")
        if twin != place:
            pair = f"{names[twin]!r} and {name!r}"
            raise DataError(f"{dataset.source}: expected class names that {to} tells apart, got {pair}; rename one, or write coco.")


def _line(name: str) -> str:
    """The line of a name as it is read from the list of classes, "" where it is not one line."""
    lines = [line.strip() for line in _stored(name).decode().splitlines()]
    lines = [line for line in lines if line]
    return lines[0] if len(lines) == 1 else ""


def _stored(text: str) -> bytes:
    """The bytes of a text, none where it has none."""
    with suppress(UnicodeEncodeError):
        return text.encode()
    return b""


def _in_row(name: str) -> str:
    """A name as it is read from a row of text, "" where it is not."""
    lines = _stored(f"0 0 1 0 1 1 0 1 {name} 0").decode().splitlines()
    row = parse_row(lines[0]) if len(lines) == 1 else ""
    return row.name if isinstance(row, Row) else ""


def _in_xml(name: str) -> str:
    """A name as it is read from an XML element, "" where it is not."""
    element = ElementTree.Element("name")
    element.text = name
    with suppress(ElementTree.ParseError, ValueError):
        return (ElementTree.fromstring(_stored(ElementTree.tostring(element, encoding="unicode"))).text or "").strip()
    return ""


def _in_json(name: str) -> str:
    """A name as it is read from a JSON string, "" where it is not."""
    with suppress(ValueError):
        return str(json.loads(_stored(json.dumps(name, ensure_ascii=False)))).strip()
    return ""


_SAID: Mapping[str, Callable[[str], str]] = {"dota": _in_row, "voc": _in_xml, "labelme": _in_json}
