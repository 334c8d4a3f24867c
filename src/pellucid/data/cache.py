"""Every picture decoded and resized once: kept nowhere, in memory shared by all workers, or in one memory-mapped file.

A record counts only if its key matches the picture as it is now, and the key is written after the pixels.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import mmap
import os
import shutil
import struct
import warnings
import zlib
from pathlib import Path

import numpy as np

from ..errors import DataError, MissingFileError, PellucidWarning, UsageError
from .images import READER_VERSION, read_image, resize_longest
from .index import Index

MODES = ("none", "ram", "disk")
_KEY = struct.Struct("<16sI12x")  # digest of what the pixels were made from, CRC-32 of the pixels
_EMPTY = bytes(_KEY.size)


class ImageStore:
    """`store[row]` is the picture of that row, (h, w, 3) uint8 RGB, its longer side `size`; it may be shared: do not write to it."""

    def __init__(self, index: Index, size: int, mode: str = "none", directory: str | Path | None = None) -> None:
        if mode not in MODES:
            raise UsageError(f"Expected cache as one of {', '.join(MODES)}, got {mode!r}; choose one.")
        self.index, self.size, self.mode = index, size, mode
        self._shapes, self._start = layout(index.sizes, size)
        if mode == "ram":
            self._backing: _Memory | _File | None = _Memory(len(index), int(self._start[-1]))
        else:
            self._backing = None if mode == "none" else _File(self._file(directory), len(index), int(self._start[-1]))

    def __len__(self) -> int:
        return len(self.index)

    @property
    def nbytes(self) -> int:
        """Bytes of all pixels at this size."""
        return int(self._start[-1])

    def __getitem__(self, row: int) -> np.ndarray:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        if self._backing is None:
            return self._decode(row)
        start, shape = int(self._start[row]), tuple(int(n) for n in self._shapes[row])
        key = b"" if self.mode == "ram" else self._key(row)
        found = self._backing.read(row, start, shape, key)
        if found is None:
            found = self._decode(row)
            self._backing.write(row, start, found, key)
        return found

    def _decode(self, row: int) -> np.ndarray:
        """DataError, with the file's name, if the picture cannot be read or has another size than when it was indexed."""
        path = self.index.path(row)
        image = read_image(path)
        height, width = (int(n) for n in self.index.sizes[row])
        if image.shape[:2] != (height, width):
            found = f"{image.shape[1]}x{image.shape[0]}"
            raise DataError(f"{path}: expected the {width}x{height} picture that was indexed, found {found}; start again.")
        return resize_longest(image, self.size)

    def _key(self, row: int) -> bytes:
        path = self.index.path(row)
        try:
            stat = os.stat(path)
        except OSError:
            raise MissingFileError(f"{path}: expected a picture, but there is no such file; put it back or start again.") from None
        text = (os.fsencode(path), stat.st_size, stat.st_mtime_ns, self.size, READER_VERSION)
        return hashlib.blake2b(repr(text).encode(), digest_size=16).digest()

    def _file(self, directory: str | Path | None) -> Path:
        """A name of its own for each list of pictures and size, so that two files never disagree about where a record lies."""
        folder = Path(directory) if directory else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pellucid"
        digest = hashlib.blake2b(repr((os.fsencode(self.index.root), self.size, READER_VERSION)).encode(), digest_size=10)
        for array in (self.index.paths.values, self.index.paths.start, self.index.sizes):
            digest.update(np.ascontiguousarray(array).tobytes())
        return folder / f"{digest.hexdigest()}.pixels"


def layout(sizes: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Shapes (n, 3) of the resized pictures and where each starts, (n + 1,), when they lie end to end; as `fit_longest` counts."""
    gain = size / np.maximum(sizes.max(1, initial=1), 1)
    fitted = np.maximum(1, np.round(sizes * gain[:, None]).astype(np.int64))
    shapes = np.concatenate((fitted, np.full((len(sizes), 1), 3, np.int64)), 1)
    return shapes, np.concatenate(([0], np.cumsum(shapes.prod(1))))


def available_memory() -> int:
    """Bytes that this process can still take: free memory, or what its control group leaves."""
    with open("/proc/meminfo") as file:
        free = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
    except (OSError, ValueError):
        return free
    return free if limit == "max" else max(0, min(free, int(limit) - used))


class _Memory:
    """One anonymous shared mapping, made before the workers fork: what one decodes, all have."""

    def __init__(self, records: int, size: int) -> None:
        if size > 0.9 * available_memory():
            need, free = size / 1e9, available_memory() / 1e9
            raise UsageError(f"cache=ram needs {need:.1f} GB for the decoded pictures, {free:.1f} GB are free; use cache=disk or none.")
        self._pixels = np.frombuffer(mmap.mmap(-1, max(1, size)), np.uint8)
        self._ready = np.frombuffer(mmap.mmap(-1, max(1, records)), np.uint8)

    def read(self, row: int, start: int, shape: tuple[int, ...], key: bytes) -> np.ndarray | None:
        if not self._ready[row]:
            return None
        return self._pixels[start : start + shape[0] * shape[1] * shape[2]].reshape(shape)

    def write(self, row: int, start: int, image: np.ndarray, key: bytes) -> None:
        self._pixels[start : start + image.size] = image.reshape(-1)
        self._ready[row] = 1

    def __reduce__(self):
        raise UsageError("cache=ram is shared with forked workers only; use cache=disk or none where workers are spawned.")


class _File:
    """Keys, then pixels, in one sparse file; opened anew in every process that unpickles it."""

    def __init__(self, path: Path, records: int, size: int) -> None:
        self._path, self._records, self._size = path, records, size
        self._pixels_at = -(-records * _KEY.size // mmap.PAGESIZE) * mmap.PAGESIZE
        self._open()
        self._check_space()

    def _open(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            os.ftruncate(self._fd, self._pixels_at + max(1, self._size))  # every writer of this name sets the same length
            self._map = mmap.mmap(self._fd, 0, prot=mmap.PROT_READ)
        except OSError as error:
            raise UsageError(f"cache=disk cannot use {self._path} ({error.strerror}); name a writable folder, or use cache=none.") from None
        self._bytes = np.frombuffer(self._map, np.uint8)
        self._checked = np.zeros(self._records, np.bool_)  # whose pixels this process has compared with their CRC
        self._full = False

    def _check_space(self) -> None:
        missing = self._size - os.fstat(self._fd).st_blocks * 512
        free = shutil.disk_usage(self._path.parent).free
        if missing > free:
            need = f"{missing / 1e9:.1f} GB in {self._path.parent}"
            raise UsageError(f"cache=disk needs {need}, {free / 1e9:.1f} GB are free; make room, or use another folder or cache=none.")

    def read(self, row: int, start: int, shape: tuple[int, ...], key: bytes) -> np.ndarray | None:
        before = self._record(row)
        if before[:16] != key:
            return None
        start += self._pixels_at
        image = self._bytes[start : start + shape[0] * shape[1] * shape[2]].reshape(shape).copy()
        if not self._checked[row] and zlib.crc32(image.data) != _KEY.unpack(before)[1]:
            return None
        if self._record(row) != before:  # rewritten while it was copied
            return None
        self._checked[row] = True
        return image

    def write(self, row: int, start: int, image: np.ndarray, key: bytes) -> None:
        if self._full:
            return
        place, pixels = row * _KEY.size, np.ascontiguousarray(image).reshape(-1).data
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX, _KEY.size, place)
            self._put(_EMPTY, place)
            self._put(pixels, start + self._pixels_at)
            self._put(_KEY.pack(key, zlib.crc32(pixels)), place)
        except OSError as error:
            self._full = True
            warnings.warn(f"{self._path}: the cache cannot be written ({error.strerror}); going on without.", PellucidWarning, stacklevel=2)
        finally:
            with contextlib.suppress(OSError):
                fcntl.lockf(self._fd, fcntl.LOCK_UN, _KEY.size, place)

    def _put(self, data: bytes | memoryview, place: int) -> None:
        while data:
            done = os.pwrite(self._fd, data, place)
            data, place = data[done:], place + done

    def _record(self, row: int) -> bytes:
        return self._map[row * _KEY.size : (row + 1) * _KEY.size]

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.close(self._fd)

    def __getstate__(self) -> dict:
        return {"path": self._path, "records": self._records, "size": self._size, "pixels_at": self._pixels_at}

    def __setstate__(self, state: dict) -> None:
        self._path, self._records, self._size, self._pixels_at = state["path"], state["records"], state["size"], state["pixels_at"]
        self._open()
