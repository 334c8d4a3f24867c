"""Training on several devices: a process for each, started and ended by the one that was asked to train.

`python -m pellucid.train.launch FOLDER` is one of them: it reads the settings in the run folder, and which rank it is from the environment.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import PellucidError, PellucidWarning

INTERRUPTED = 75  # exit code of a rank that was told to stop and has saved
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def launch(folder: Path, processes: int) -> bool:
    """Train the run in `folder` with so many processes; whether it was interrupted. PellucidError where one of them fails."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(processes), "NODE_RANK": "0"}
    words = [sys.executable, "-m", __spec__.name, str(folder)]
    ranks: list[subprocess.Popen[bytes]] = []
    with _handed_on(ranks):
        for rank in range(processes):
            own = {**os.environ, **place, "LOCAL_RANK": str(rank), "RANK": str(rank)}
            ranks.append(subprocess.Popen(words, env=own, start_new_session=True))
        codes = _wait(ranks)
    if any(code not in (0, INTERRUPTED) for code in codes):
        raise PellucidError(
            f"{folder}: expected {processes} processes that train to the end, got exit codes {codes}; their words are above"
        )
    return INTERRUPTED in codes


def _wait(ranks: list[subprocess.Popen[bytes]]) -> list[int]:
    """Exit codes of all; where one fails the others, which would wait for it for ever, are ended."""
    try:
        while any(rank.poll() is None for rank in ranks):
            if any(rank.poll() not in (None, 0, INTERRUPTED) for rank in ranks):
                break
            time.sleep(0.2)
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
    return [rank.wait() for rank in ranks]


@contextmanager
def _handed_on(ranks: list[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Ctrl-C and SIGTERM go to the ranks, which decide together when to stop."""

    def hand_on(number: int, frame: object) -> None:
        for rank in ranks:
            if rank.poll() is None:
                rank.send_signal(number)

    try:
        handlers = {number: signal.signal(number, hand_on) for number in SIGNALS}
    except ValueError:  # not in the main thread
        handlers = {}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def main(folder: Path) -> int:
    """One rank."""
    from .run import train_rank

    try:
        return INTERRUPTED if train_rank(folder, int(os.environ["LOCAL_RANK"])) else 0
    except (PellucidError, OSError) as error:
        print(f"error: rank {os.environ['LOCAL_RANK']}: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 1)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    warnings.simplefilter("always", PellucidWarning)
    sys.exit(main(Path(sys.argv[1])))
