"""Loaders over a data set: the order and every draw come from (seed, epoch, row), so workers hold no state and a run can go on anywhere."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import torch
from pytorch_lightning import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from ..augment.apply import apply
from ..augment.plan import order
from ..augment.presets import AugmentConfig
from ..types import Batch, Packed
from .cache import ImageStore
from .collate import collate
from .dataset import TrainingSet, ValidationSet, without_mirrors, without_pastes
from .ring import Ring, keep_freed_memory
from .tiles import Tiles, TileSet

if TYPE_CHECKING:
    from ..tasks.base import Task
    from .index import DataSet, Index

L = TypeVar("L", bound=DataLoader)
LAYERS = 2  # canvases of pixels that room is made for per image: one moved, and now and then one blended with it


@dataclass(frozen=True)
class Loading:
    """How pictures are read, changed and batched."""

    imgsz: int = 640  # S, side of the canvas
    batch: int = 16
    workers: int = 0  # processes that read; 0 reads in this one
    cache: Literal["none", "ram", "disk"] = "none"
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    seed: int = 0
    close_mosaic_epoch: int | None = None  # from this epoch on neither mosaic nor mixup
    fraction: float = 1.0  # share of the training pictures in use
    cache_dir: Path | None = None  # where cache="disk" writes
    tell_pastes: bool = True  # warn where objects were to be pasted that have no outline
    prefetch: int = 2  # batches that a worker makes ahead
    ring: bool | None = None  # pixels by memory that is used again and again; None: where a GPU trains


class EpochSampler:
    """Keys (epoch, row) of all rows in the order of an epoch; of several ranks each gets an equal share."""

    def __init__(self, length: int, seed: int, rank: int = 0, world: int = 1) -> None:
        self.length, self.seed, self.rank, self.world = length, seed, rank, world
        self.epoch = 0
        self.skip = 0  # keys of this epoch that are done already

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch, self.skip = epoch, 0

    def __len__(self) -> int:
        return -(-self.length // self.world)

    def keys(self, epoch: int) -> list[tuple[int, int]]:
        rows = np.resize(order(self.length, self.seed, epoch), len(self) * self.world)  # the first rows again, to share equally
        return [(epoch, row) for row in rows[self.rank :: self.world].tolist()]


class EpochBatches(Sampler[list[tuple[int, int]]]):
    """Batches of keys from the sampler's position on, epoch after epoch without end, so that workers never run dry between two epochs."""

    def __init__(self, sampler: EpochSampler, batch: int) -> None:
        self.sampler, self.batch = sampler, batch

    def __len__(self) -> int:
        """Batches of one epoch."""
        return -(-len(self.sampler) // self.batch)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        keys = self.sampler.keys(self.sampler.epoch)[self.sampler.skip :]
        for epoch in count(self.sampler.epoch + 1):
            yield from (keys[start : start + self.batch] for start in range(0, len(keys), self.batch))
            keys = self.sampler.keys(epoch)


class EpochLoader(DataLoader):
    """A loader of which each pass is one epoch of an endless stream; it knows its position, and Lightning keeps its `state_dict`."""

    def __init__(self, data: TrainingSet, keys: EpochSampler, batch: int, ring: Ring | None = None, **settings: Any) -> None:
        self.keys, self.batch, self.ring = keys, batch, ring
        self.done = 0  # batches given out in this epoch
        self.waited = 0.0  # seconds that the trainer has waited for batches
        self.starts = 0  # streams begun
        self._stream: Iterator[Packed] | None = None
        self._ready: tuple[int, int] | None = None  # epoch and keys done at which the stream stands; None within an epoch
        self._lent = False  # a batch of the ring was handed out
        super().__init__(data, batch_sampler=EpochBatches(keys, batch), **settings)

    def __iter__(self) -> Iterator[Packed]:  # type: ignore[override]
        epoch, skip = self.keys.epoch, self.keys.skip
        if self._stream is None or self._ready != (epoch, skip):
            if self.ring is not None:
                self.ring.drain()
            self._lent = False
            self._stream = super().__iter__()
            self.starts += 1
        self._ready = None
        self.done = skip // self.batch
        while self.done < len(self):
            if self.ring is not None and self._lent:
                self.ring.release()
            self.done += 1
            since = time.perf_counter()
            packed = next(self._stream)
            self.waited += time.perf_counter() - since
            self._lent = True
            if self.done == len(self):  # a trainer that knows the length never asks for more
                self._ready, self.keys.skip = (epoch + 1, 0), 0
            yield packed if self.ring is None else self.ring.fetch(packed)

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.keys.epoch, "batches": self.done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on behind the batches already given out; the next pass over that epoch is short, all others are whole."""
        self.keys.set_epoch(state["epoch"])
        self.keys.skip = state["batches"] * self.batch
        self.done = state["batches"]


class DataModule(LightningDataModule):
    """Training and validation loaders of `Packed`, turned into `Batch` on the device; `loading` are the fields of `Loading`.

    The order of rows is already shared among ranks: give the Trainer use_distributed_sampler=False. `close()` when done without a Trainer.
    """

    def __init__(self, dataset: DataSet, task: Task, **loading: Any) -> None:
        super().__init__()
        self.dataset, self.task, self.loading = dataset, task, Loading(**loading)
        self._stores: dict[str, ImageStore] = {}
        self._loaders: list[DataLoader] = []
        self.training_ring: Ring | None = None

    def index(self, split: str) -> Index:
        """The pictures in use; `fraction` cuts the training split, by the same choice for the same seed."""
        index = self.dataset.splits[split]
        if split != "train" or self.loading.fraction >= 1:
            return index
        kept = max(1, round(len(index) * self.loading.fraction))
        return index.take(np.sort(order(len(index), self.loading.seed, 0)[:kept]))

    def train_dataloader(self) -> EpochLoader:
        index, use = self.index("train"), self.loading
        augment = without_pastes(without_mirrors(use.augment, index), index, use.tell_pastes)
        ring = self.training_ring = self._ring()
        data = TrainingSet(index, self._store("train", index), augment, use.imgsz, use.seed, use.close_mosaic_epoch, ring)
        keys = EpochSampler(len(index), use.seed, *self._ranks())
        settings = self._settings(warped=True, pin=ring is None, ignored=bool(index.ignore.any()))
        return self._kept(EpochLoader(data, keys, use.batch, ring, **settings))

    def val_dataloader(self) -> DataLoader:
        return self.eval_loader("val", *self._ranks())

    def eval_loader(self, split: str, rank: int = 0, world: int = 1) -> DataLoader:
        """Letterboxed pictures of a split, in the order of its Index; of several ranks each has its own."""
        index = self.index(split)
        data: Dataset = ValidationSet(index, self._store(split, index), self.loading.imgsz)
        own = range(rank, len(index), world)
        return self._kept(DataLoader(data, batch_size=self.loading.batch, sampler=own, **self._settings(warped=False)))

    def tile_loader(self, tiles: Tiles) -> DataLoader:
        """Letterboxed tiles, picture after picture."""
        data = TileSet(tiles, self.loading.imgsz)
        return self._kept(DataLoader(data, batch_size=self.loading.batch, shuffle=False, **self._settings(warped=False)))

    def on_after_batch_transfer(self, batch: Packed | Batch, dataloader_idx: int) -> Batch:
        """The pixels, resampled where the batch now lies; what stayed in the ring of a loader is copied out of it."""
        if not isinstance(batch, Packed):
            return batch
        if self.training_ring is not None and not batch.buffer.is_cuda:
            batch = replace(batch, targets=batch.targets.replaced(Tensor.clone))
        return apply(batch)

    def close(self) -> None:
        """End the workers of all loaders; left to the end of the process, torch waits up to five seconds for each."""
        for loader in self._loaders:
            if isinstance(loader._iterator, _MultiProcessingDataLoaderIter):
                loader._iterator._shutdown_workers()
            loader._iterator = None
            if isinstance(loader, EpochLoader):
                loader._stream = None

    def teardown(self, stage: str) -> None:
        self.close()

    def _kept(self, loader: L) -> L:
        self._loaders.append(loader)
        return loader

    def _ranks(self) -> tuple[int, int]:
        """(this process's rank, number of processes)."""
        return (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)

    def _on_gpu(self) -> bool:
        """Whether batches go to a GPU: that of the trainer, or any where there is no trainer yet."""
        return torch.cuda.is_available() and (self.trainer is None or self.trainer.strategy.root_device.type == "cuda")

    def _store(self, split: str, index: Index) -> ImageStore:
        if split not in self._stores:  # before the workers fork, so that they share one memory
            self._stores[split] = ImageStore(index, self.loading.imgsz, self.loading.cache, self.loading.cache_dir)
        return self._stores[split]

    def _ring(self) -> Ring | None:
        """Memory for the pixels of the training batches, if wanted and not too much."""
        use = self.loading
        wanted = self._on_gpu() if use.ring is None else use.ring
        size = (use.workers, use.prefetch + 2, LAYERS * use.batch * 3 * use.imgsz**2)
        return Ring(*size, pinned=self._on_gpu()) if wanted and use.workers and Ring.fits(*size) else None

    def _settings(self, warped: bool, pin: bool = True, ignored: bool = False) -> dict[str, Any]:
        workers = self.loading.workers
        several = {
            "prefetch_factor": self.loading.prefetch,
            "persistent_workers": True,
            "multiprocessing_context": "fork",
            "worker_init_fn": begin_worker,
        }
        return {
            "num_workers": workers,
            "collate_fn": partial(collate, size=self.loading.imgsz, extras=self.task.targets, warped=warped, ignored=ignored),
            "pin_memory": self._on_gpu() and pin,
            "generator": torch.Generator().manual_seed(self.loading.seed),  # the loader's own draws stay out of the global stream
            **(several if workers else {}),
        }


def begin_worker(worker: int) -> None:
    """Ctrl-C and SIGTERM reach a whole process group; the training process alone decides what they mean and ends its workers."""
    os.setpgid(0, 0)
    keep_freed_memory()
