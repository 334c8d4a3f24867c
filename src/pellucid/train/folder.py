"""A run on disk: its numbered folder, args.yaml, env.json, results.csv; every file appears whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from ..errors import DataError, MissingFileError, UsageError

PACKAGES = ("torch", "torchvision", "pytorch-lightning", "jsonargparse", "numpy", "pillow", "faster-coco-eval", "safetensors")


def new_folder(project: str, task: str, name: str, exist_ok: bool = False) -> Path:
    """Make `<project>/<task>/<name>`, or `<name>-2`, `-3`, ... where that exists; UsageError where it cannot be written."""
    if not name or name in (".", "..") or "/" in name or "\\" in name:
        raise UsageError(f"name: expected a plain folder name, got {name!r}; put folders into project=...")
    parent = Path(project) / task
    try:
        os.fspath(parent / name).encode()  # weights can be read again only where the path is UTF-8
        parent.mkdir(parents=True, exist_ok=True)
        return _claim(parent, name, exist_ok)
    except (OSError, ValueError) as error:  # ValueError: a zero byte, or bytes that are not UTF-8
        raise UsageError(
            f"{parent}: expected a folder that can be written, got {getattr(error, 'strerror', None) or error}; choose another project=..."
        ) from None


@contextmanager
def unless_empty(folder: Path) -> Iterator[None]:
    """What ends badly before anything is in `folder` leaves no folder."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            folder.rmdir()
        raise


def find_run(path: str) -> tuple[Path, Path]:
    """(run folder, last.ckpt) of a run folder or of a checkpoint in its weights/; MissingFileError where there is none."""
    given = Path(path)
    checkpoint = given if given.suffix == ".ckpt" else given / "weights" / "last.ckpt"
    folder = checkpoint.parent.parent
    for file in (checkpoint, folder / "args.yaml"):
        if not file.is_file():
            raise MissingFileError(
                f"{file}: expected a file of the run to resume, got nothing; give the run folder or its weights/last.ckpt"
            )
    return folder, checkpoint


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary name to write to; it takes the place of `path` when the block ends well, and is removed when it does not."""
    part = path.with_name(f".{path.name}.part")
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8", errors="backslashreplace")  # file names need not be UTF-8


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def write_args(folder: Path, config: Any) -> None:
    """args.yaml: every setting of the run, readable by `--config`."""
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(config).items()}
    write_text(folder / "args.yaml", yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))


def read_args(folder: Path) -> dict[str, Any]:
    """The settings in args.yaml; DataError where it holds none."""
    path = folder / "args.yaml"
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        settings = None
    if not isinstance(settings, dict):
        raise DataError(f"{path}: expected the settings of a run, got something else; restore it, or start a new run")
    return {str(key): value for key, value in settings.items()}


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """A CSV with the union of the rows' columns, each behind the one that it follows in its row."""
    text = io.StringIO()
    columns: list[str] = []
    for row in rows:
        place = 0
        for key in row:
            if key not in columns:
                columns.insert(place, key)
            place = columns.index(key) + 1
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    write_text(path, text.getvalue())


def read_rows(path: Path) -> list[dict[str, float]]:
    """The rows of a CSV of numbers; empty cells are left out; DataError where it is none."""
    if not path.is_file():
        return []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [{key: float(value) for key, value in row.items() if value} for row in csv.DictReader(file)]
    except (ValueError, TypeError, csv.Error):
        raise DataError(f"{path}: expected a table of numbers, got something else; restore or remove it") from None
    return rows


def environment() -> dict[str, Any]:
    """Machine and versions, JSON-ready."""
    import torch

    gpus = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return {
        "pellucid": _version("pellucid"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpu_cores": os.cpu_count(),
        "memory_gb": round(available_memory() / 1e9, 1),
        "shm_free_gb": round(free_space("/dev/shm") / 1e9, 2),
        "cuda": torch.version.cuda,
        "gpus": [{"name": gpu.name, "memory_gb": round(gpu.total_memory / 1e9, 1)} for gpu in gpus],
        "packages": {name: _version(name) for name in PACKAGES},
        "command": " ".join(sys.argv),
    }


def free_space(path: str | Path) -> float:
    """Free bytes where `path` lies; infinite where the system does not say."""
    import shutil

    return _or_infinite(lambda: float(shutil.disk_usage(path).free))


def available_memory() -> float:
    """Bytes of memory that can still be taken; infinite where the system does not say."""

    def read() -> float:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith("MemAvailable"))) * 1024

    return _or_infinite(read)


def _or_infinite(read: Callable[[], float]) -> float:
    try:
        return read()
    except (OSError, StopIteration):
        return float("inf")


def _claim(parent: Path, name: str, exist_ok: bool) -> Path:
    number = 1
    while True:
        folder = parent / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(exist_ok=exist_ok)
            (folder / ".writable").touch()
            (folder / ".writable").unlink()
            return folder
        except FileExistsError:
            number += 1


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return "" if value != value else f"{value:.6g}"
    return value


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
