"""Rules that settings are held to: the kind of a value, its range; a broken rule is a UsageError that names the setting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import PurePath
from typing import Any

from .errors import UsageError

LARGEST = 16_384  # pixels: a canvas of 800 MB
OVERLAP = 200  # pixels that large tiles share where nothing is said
STRIDES = (8, 16, 32)  # of the levels, whose anchors are the centres of their cells
STRIDE = STRIDES[-1]  # sides of a canvas are multiples of this
REFUSED = {  # familiar names that few verbs take, or none
    "half": "half precision is precision=16",
    "stream": "results always come one by one here",
    "vid_stride": "it belongs to predict",
    "save_crop": "it belongs to predict",
}

FAMILIAR = {  # names of other programs for settings that are here
    **dict.fromkeys(("lr", "learning_rate"), "lr0"),
    **dict.fromkeys(("weights", "pretrained", "checkpoint"), "model"),
    **dict.fromkeys(("img_size", "image_size", "img", "size"), "imgsz"),
    **dict.fromkeys(("batch_size", "bs"), "batch"),
    **dict.fromkeys(("amp", "fp16", "dtype"), "precision"),
    **dict.fromkeys(("augment", "augmentation"), "preset"),
    **dict.fromkeys(("confidence", "threshold", "conf_thres"), "conf"),
    **dict.fromkeys(("dataset", "data_path"), "data"),
}


def words_of_type(kind: str) -> str:
    """The annotation of a field as a user would say it."""
    if kind.startswith("tuple"):
        return "ids or names as in 0,3 or cat,dog" + (" or none" if kind.endswith("None") else "")
    if kind.startswith("Literal"):
        return "one of " + ", ".join(choices_of(kind)) + (" or none" if kind.endswith("None") else "")
    words = {
        "int": "a whole number",
        "float": "a number",
        "bool": "true or false",
        "str": "text",
    }
    return " or ".join("none" if part == "None" else words[part] for part in kind.split(" | "))


def choices_of(kind: str) -> list[str]:
    """The values of a Literal annotation; for any other kind of no meaning."""
    return [part.strip(" \"'") for part in kind.removeprefix("Literal[").removesuffix(" | None").removesuffix("]").split(",")]


def _check_kinds(config: Any) -> None:
    """Raise UsageError for a value of another kind; numbers and paths become text, lists tuples, where the field is one."""
    for field in fields(config):
        kind, value = str(field.type), getattr(config, field.name)
        if kind.startswith(("str", "Literal")) and isinstance(value, int | PurePath) and not isinstance(value, bool):
            value = str(value)
        if kind.startswith("tuple") and isinstance(value, list):
            value = tuple(value)
        if not _fits(kind, value):
            raise UsageError(f"{field.name}: expected {words_of_type(kind)}, got {value!r}; give it in that form")
        object.__setattr__(config, field.name, value)


def _fits(kind: str, value: Any) -> bool:
    if kind.startswith("Literal"):
        return value in choices_of(kind) or (value is None and kind.endswith("None"))
    if isinstance(value, tuple):
        return "tuple" in kind and all(type(part) in (int, str) for part in value)
    kinds = {"int": int, "float": int | float, "bool": bool, "str": str, "None": type(None)}
    return any(
        part in kinds and isinstance(value, kinds[part]) and (part == "bool" or not isinstance(value, bool)) for part in kind.split(" | ")
    )


def shared_rules(config: Any) -> None:
    _check_kinds(config)
    imgsz = getattr(config, "imgsz", None)
    if imgsz is not None and (imgsz < STRIDE or imgsz % STRIDE or imgsz > LARGEST):
        near = min(LARGEST, max(STRIDE, round(imgsz / STRIDE) * STRIDE))
        raise UsageError(f"imgsz: expected a multiple of {STRIDE} up to {LARGEST}, got {imgsz}; take {near}")
    at_least(config, 1, *({"batch", "max_det"} & {field.name for field in fields(config)}))
    if getattr(config, "workers", None) is not None:
        at_least(config, 0, "workers")


def tile_rules(config: Any) -> None:
    """`tile` and `overlap` in pixels; an overlap alone has no meaning, none beside a tile becomes a third of it, at most `OVERLAP`."""
    tile, overlap = config.tile, config.overlap
    if tile is None and overlap is not None:
        raise UsageError(f"overlap: expected tile beside it, got overlap={overlap} alone; add tile=1024 or leave it out")
    if tile is not None and not STRIDE <= tile <= LARGEST:
        raise UsageError(f"tile: expected a number of pixels from {STRIDE} to {LARGEST}, got {tile}; take one in between")
    if tile is not None and overlap is None:
        object.__setattr__(config, "overlap", min(OVERLAP, tile // 3))
    elif tile is not None and not 0 <= overlap < tile:
        raise UsageError(f"overlap: expected 0 or more pixels and less than tile={tile}, got {overlap}; take {tile // 5}")


def at_least(config: Any, low: float, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if value is not None and not low <= value < float("inf"):
            raise UsageError(f"{name}: expected a finite number of at least {low}, got {value}; take {low} or more")


def within(config: Any, low: float, high: float, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if value is not None and not low <= value <= high:
            raise UsageError(f"{name}: expected a number from {low} to {high}, got {value}; take one in between")


@contextmanager
def writable(out: object) -> Iterator[None]:
    """UsageError that names `out`, as the user knows it, where what is made on the way there cannot be."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"out: expected a place that can be written, got {out} ({error.strerror or error}); choose another") from None


def required(config: Any, *names: str) -> None:
    """Raise UsageError where one of the named settings was left empty."""
    for name in names:
        if not getattr(config, name):
            raise UsageError(f"{name}: expected a value, got none; add {name}=...")


def merged(config: Any, changes: dict[str, Any]) -> Any:
    """`config` with some values replaced; UsageError names a key that is not one of its fields, and its nearest neighbour."""
    for key in changes:
        check_key(type(config), key)
    return replace(config, **changes)


def check_key(kind: type, key: str) -> None:
    """Raise UsageError with a suggestion where `kind` has no field `key`."""
    from difflib import get_close_matches

    names = [field.name for field in fields(kind)]
    if key in names:
        return
    if key in REFUSED:
        raise UsageError(
            f"{key}: expected a setting of this verb, got a familiar one that it does not offer ({REFUSED[key]}); leave it out"
        )
    near = [FAMILIAR[key]] if FAMILIAR.get(key) in names else get_close_matches(key, names, 1, 0.6)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}"
    raise UsageError(f"unknown setting {key!r}: {hint}")


def did_you_mean(words: Iterable[str], known: Iterable[str]) -> str:
    """ "; did you mean 'tree' for 'tre'?" for the first of `words` that is not `known` but near one that is, and not said; else nothing."""
    from difflib import get_close_matches

    words, known = list(words), list(known)
    free = {name.lower(): name for name in reversed(known) if name not in words}
    for word in words:
        near = get_close_matches(word.lower(), free, 1) if word not in known else []
        if near:
            return f"; did you mean {free[near[0]]!r} for {word!r}?"
    return ""
