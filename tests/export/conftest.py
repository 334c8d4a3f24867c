"""A file that several tests look at; writing one takes seconds."""

import fcntl
import logging
import pickle

import pytest

from pellucid.config import ExportConfig
from pellucid.export import export

SHIPPED = {"detect": "trees-detect-n", "segment": "nuclei-segment-n", "pose": "quokka-pose-n", "obb": "nuclei-obb-n"}


@pytest.fixture(scope="session", autouse=True)
def quiet():
    """The exporter writes a trace of all it does where somebody listens, as pytest does; that takes most of its time."""
    trace = logging.getLogger("torch.__trace")
    level = trace.level
    trace.setLevel(logging.CRITICAL)
    yield
    trace.setLevel(level)


@pytest.fixture(scope="session")
def trees(tmp_path_factory, worker_id):
    """The export of the tree detector at its own size, written by the first worker that asks."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "trees"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = folder / "export.pickle"
        if not kept.is_file():
            kept.write_bytes(pickle.dumps(export(ExportConfig(model=SHIPPED["detect"], out=str(folder / "trees.onnx")))))
    return pickle.loads(kept.read_bytes())
