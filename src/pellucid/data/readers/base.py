"""What all formats share: the request, the rules for one image, and safe reading of small text files."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path

import yaml

from ...errors import DataError, MissingFileError, UsageError
from ...rules import did_you_mean
from ..findings import Log
from ..images import SUFFIXES, Header, read_header

ALIASES = {"train": ("train", "training"), "val": ("val", "valid", "validation"), "test": ("test", "testing")}
_SPLIT_KEYS = [key for aliases in ALIASES.values() for alias in aliases for key in (alias, f"{alias}_json")]
KEYS = ("path", "names", "nc", "kpt_shape", "kpt_names", "kpt_sigmas", "flip_idx", *_SPLIT_KEYS)  # of a data set's YAML
OTHER_PICTURES = (".gif", ".heic", ".heif", ".avif", ".jp2", ".svg", ".dng", ".psd")
_YAML_LIMIT = 4 << 20
_FIRST = 1 << 14  # bytes: few label files are larger


@dataclass(frozen=True)
class Request:
    """What is asked of a reader."""

    needs: tuple[str, ...]
    splits: tuple[str, ...] | None  # None: all that there are
    whole: bool = False  # all that the files hold: an object that lacks a kind is read without it
    copy: bool = False  # to be written anew: where each object stands in its file, and its corners as they were drawn

    def deliverable(self, kinds: Sequence[str], reader: str) -> None:
        """UsageError unless the reader delivers every kind that is needed."""
        missing = [kind for kind in self.needs if kind not in kinds]
        if missing:
            raise UsageError(f"The {reader} reader delivers {', '.join(kinds)}, not {', '.join(missing)}; choose another task or format.")

    def columns(self, area: bool = False) -> tuple[str, ...]:
        """What IndexBuilder gets beside boxes; areas too where the format states them or polygons give them."""
        kinds = tuple("corners" if kind == "rboxes" else kind for kind in self.needs if kind != "boxes")
        kinds += ("area",) if area or "polygons" in kinds else ()
        again = [name for name, kind in (("drawn", "corners"), ("wound", "polygons")) if kind in kinds]
        return (*kinds, *again, "origin") if self.copy else kinds


def splits_of(request: Request, present: Sequence[str], source: object) -> tuple[str, ...]:
    """The splits to read, all of them there, else DataError."""
    if request.splits is None:
        return tuple(present)
    missing = [split for split in request.splits if split not in present]
    if missing:
        there = ", ".join(present) or "none"
        raise DataError(
            f"{source}: expected the split {missing[0]!r}, found {there}; add it to the data set, or make it with `pellucid data split`."
        )
    return request.splits


def hints(known: Collection[str]) -> Callable[[str], str]:
    """What `did_you_mean` says of a name that is none of those known, thought of once a name."""
    return cache(lambda name: did_you_mean([name], known))


def empty_split(source: object, split: str, where: str, log: Log) -> DataError:
    """What to raise for a split without one readable image."""
    seen = "".join(f" {finding.sentence}." for finding in log.findings()[:1])
    return DataError(f"{source}: the split {split!r} is empty: no readable picture in {where}; check the path.{seen}")


def no_labels(split: str, where: str, log: Log) -> None:
    """Says that a split has not one label file, where one was looked for; only what is for tests can do without."""
    log.add("labels-none" if split == "test" else "labels-lost", split, where)


def probe(path: str | Path, log: Log) -> Header | None:
    """The header of an image that can be read to its end, else None and a finding; pages behind its first are one too."""
    try:
        header = read_header(path, complete=True)
        log.add("image-pages", path, f"{header.pages} pages", count=header.pages > 1)
        return header
    except MissingFileError:
        log.add("image-missing", path)
    except DataError as error:
        log.add("image-unreadable", str(error).removesuffix("; replace or remove it."))
    return None


def read_text(path: str | Path, limit: int) -> bytes:
    """Bytes of a small text file without a byte-order mark; DataError if it is large or binary."""
    try:
        with open(path, "rb") as file:
            data = file.read(_FIRST)  # as much memory is set aside as is asked for
            data += file.read(limit + 1 - len(data)) if len(data) == _FIRST else b""
    except FileNotFoundError:
        raise MissingFileError(f"{path}: expected a file, but it is not there; check the path.") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check its permissions.") from None
    if len(data) > limit:
        raise DataError(f"{path}: expected a text file of at most {limit >> 20} MiB; this cannot be a label or list file.")
    if b"\0" in data:
        raise DataError(f"{path}: expected UTF-8 text, found binary data; save it as UTF-8.")
    return data.removeprefix(b"\xef\xbb\xbf")


def read_lines(path: Path, limit: int) -> list[str]:
    """The names in a list, a line each, blank and repeated ones left out; DataError at one that is not UTF-8."""
    names = {}
    for number, line in enumerate(read_text(path, limit).decode(errors="surrogateescape").splitlines(), 1):
        if not is_text(line):
            raise DataError(f"{path}:{number}: expected a name in UTF-8, got {ascii(line.strip())[:80]}; save the file as UTF-8.")
        names[line.strip()] = number
    return [name for name in names if name]


def is_text(line: str) -> bool:
    """Whether a line, decoded with surrogates for bytes that are none of UTF-8, has no such byte."""
    return line.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in line)


def read_yaml(path: Path) -> dict:
    """The mapping in a YAML file, all scalars as strings, so that `no` stays a name; nothing in it is ever run."""
    try:
        config = yaml.load(read_text(path, _YAML_LIMIT).decode(), Loader=yaml.BaseLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:160]
        raise DataError(f"{path}: expected YAML with train, val and names ({reason}); correct it.") from None
    if not isinstance(config, dict):
        raise DataError(f"{path}: expected a mapping with train, val and names, found {type(config).__name__}; correct it.")
    return {key: value for key, value in config.items() if value not in ("", "~", "null", "Null", "NULL")}


def check_keys(source: Path, config: Mapping[str, object]) -> None:
    """DataError at a key that is nearly one of those that are read, where that one is missing; other programs' keys pass."""
    for key in (key for key in config if isinstance(key, str) and key not in KEYS):
        low = key.lower()
        near = [known for known in KEYS if sorted(known) == sorted(low)] or get_close_matches(low, KEYS, 1, 0.8)
        if near and near[0] not in config:
            raise DataError(f"{source}: expected `{near[0]}`, got the key {key!r}, which nothing reads; correct it.")


def other_keys(source: Path) -> dict[object, object]:
    """What a data set's YAML says that nothing here reads, as plain values; DataError where it holds others, nothing in it is ever run."""
    try:
        config = yaml.safe_load(read_text(source, _YAML_LIMIT).decode())
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DataError(f"{source}: expected plain values in YAML ({' '.join(str(error).split())[:160]}); correct it.") from None
    return {key: value for key, value in config.items() if key not in KEYS}


def root_of(source: Path, config: dict) -> Path:
    """The folder that `path` in a data set's YAML means, seen from the YAML; its own folder where there is none."""
    path = config.get("path") or "."
    if not isinstance(path, str):
        raise DataError(f"{source}: expected `path` as one folder, got {path!r}; correct it.")
    return Path(os.path.abspath(source.parent / os.path.expanduser(path)))


def walk(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """(folder, sorted file names) of `folder` and all below it, links followed; DataError at a link that leads back up."""
    yield from _walk(os.path.abspath(folder), ())


def _walk(folder: str, above: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    real = os.path.realpath(folder)
    if real in above:
        raise DataError(f"{folder}: expected a folder, found a link that leads back to {real}; remove the link.")
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(f"{folder}: cannot be listed ({error.strerror}); check its permissions.") from None
    folders = [entry.path for entry in found if _is_folder(entry)]
    names = [entry.name for entry in found if not entry.name.startswith(".")]
    yield folder, names if not folders else [entry.name for entry in found if not entry.name.startswith(".") and not _is_folder(entry)]
    for path in folders:
        yield from _walk(path, (*above, real))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself: whoever opens it says so
        return False


def is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)


def inside(root: Path, name: str, where: object) -> str:
    """`name` joined to `root`; DataError if it would leave it."""
    normal = os.path.normpath(name.replace("\\", "/"))
    if not name or os.path.isabs(normal) or normal.split("/")[0] == ".." or "\0" in name:
        raise DataError(f"{where}: expected a file name inside {root}, got {name!r}; correct the path.")
    return os.path.join(root, normal)
