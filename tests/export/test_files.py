"""An exported file gives what torch gives: for every task, any number of pictures, and canvases with few anchors."""

import onnx
import pytest
import torch

from pellucid.config import ExportConfig
from pellucid.errors import PellucidError, UsageError
from pellucid.export import export, open_exported, write
from pellucid.export.graph import Graph
from pellucid.export.parity import TOLERANCE, compare, sample_canvases
from pellucid.tasks import TASKS
from pellucid.zoo import make_task, open_model
from tests.export.conftest import SHIPPED

ANCHORS = 16 + 4 + 1  # of a canvas of 32 px
WIDTHS = {"detect": 6, "segment": 6 + 32, "pose": 6 + 3 * 7, "obb": 7}
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the exporter's own parts


def test_every_task_is_looked_at():
    assert set(SHIPPED) == set(WIDTHS) == set(TASKS)


@pytest.mark.parametrize("task", SHIPPED)
def test_any_number_of_pictures_equals_torch(task, tmp_path):
    """A file written with eight pictures in a step runs with one and three, each picture as if alone; with 21 anchors it has 21 rows."""
    detector, card = open_model(SHIPPED[task])
    done = export(ExportConfig(model=SHIPPED[task], imgsz=32, batch=8, out=str(tmp_path / "x.onnx")), (detector, card))
    network, _ = open_exported(done.path)
    canvases = sample_canvases(32)
    assert len(canvases) >= 8
    torch_net, kind = detector.fuse(), make_task(card)
    for count in (1, 3, 8):
        gaps = compare(torch_net, network, kind, "e2e", canvases[:count], half=False, batch=count)
        assert gaps.faults == []
        assert gaps.compared >= 5
        output = network(canvases[:count])
        assert output.one.outputs["cls"].shape[:2] == (count, ANCHORS)
        alone = [network(canvases[i : i + 1]) for i in range(count)]
        for name, value in output.one.shapes.items():
            assert torch.allclose(value, torch.cat([one.one.shapes[name] for one in alone]), atol=1e-3), name
        assert count == 1 or not torch.equal(output.one.shapes["boxes"][0], output.one.shapes["boxes"][1])


@pytest.mark.parametrize("task", SHIPPED)
def test_the_contract_of_rows(task):
    detector, card = open_model(SHIPPED[task])
    graph = Graph(detector, make_task(card), "o2o", 300)
    for size, count in ((32, ANCHORS), (160, 300)):
        rows, *shared = graph(torch.zeros(2, 3, size, size, dtype=torch.uint8))
        assert rows.shape == (2, count, WIDTHS[task])
        assert [value.shape for value in shared] == ([(2, 32, size // 4, size // 4)] if task == "segment" else [])
        column = 5 if task == "obb" else 4
        scores, labels = rows[..., column], rows[..., column + 1]
        assert (scores.diff() <= 0).all()
        assert ((scores > 0) & (scores < 1)).all()
        assert set(labels.unique().tolist()) <= set(range(card.nc))


def test_a_file_of_one_to_many_in_half_precision_and_fixed_steps(tmp_path):
    """Two pictures in a step, whoever asks for three; suppression is ours."""
    config = {"head": "o2m", "half": True, "dynamic": False, "batch": 2, "opset": 20, "simplify": False, "imgsz": 128}
    done = export(ExportConfig(model="nuclei-obb-n", out=str(tmp_path / "x.onnx"), **config))
    assert (done.facts.path, done.facts.batch, done.gaps.faults) == ("nms", 2, [])
    assert done.gaps.tolerance == TOLERANCE[True]
    assert done.gaps.sure > 20
    model = onnx.load(done.path)
    assert model.opset_import[0].version == 20
    assert {value.data_type for value in model.graph.initializer} >= {onnx.TensorProto.FLOAT16}
    assert not {"NonMaxSuppression", "TopK"} & {node.op_type for node in model.graph.node}
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 2
    network, card = open_exported(done.path)
    canvases = sample_canvases(128)[:3]
    detector, _ = open_model("nuclei-obb-n")
    gaps = compare(detector.fuse("both"), network, make_task(card), "nms", canvases, half=True, batch=3)
    assert gaps.faults == []
    assert gaps.compared > 20


def test_batch_norm_is_folded_and_nothing_but_top_k_selects(trees):
    kinds = {node.op_type for node in onnx.load(trees.path).graph.node}
    assert "TopK" in kinds
    assert not {"BatchNormalization", "NonMaxSuppression", "Loop", "If"} & kinds


def test_a_file_that_differs_is_put_aside(trees, tmp_path, monkeypatch):
    monkeypatch.setattr(write, "to_onnx", lambda *_: onnx.load(trees.path))
    other, card = open_model("trees-detect-n")
    other.load_state_dict({name: value * 1.02 if value.is_floating_point() else value for name, value in other.state_dict().items()})
    config = ExportConfig(model="trees-detect-n", out=str(tmp_path / "x.onnx"))
    with pytest.raises(PellucidError, match=r"within tolerance of torch, got a difference of .*(score|boxes).*x\.differs\.onnx") as caught:
        export(config, (other, card))
    assert caught.value.exit_code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["x.differs.onnx"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"opset": 17}, "opset: expected a number from 18 to 22"),
        ({"head": "o2m", "max_det": 5}, "max_det: expected head=o2o"),
        ({"batch": 0}, "batch"),
        ({"imgsz": 33}, "imgsz"),
        ({"out": "x.bin"}, "out: expected a name that ends in .onnx"),
        ({"out": "x.onnx", "format": "openvino"}, "ends in _openvino"),
        ({"model": "x.onnx"}, "expected weights"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused(settings, said):
    with pytest.raises(UsageError, match=said):
        export(ExportConfig(**{"model": "detect-n", **settings}))


def test_a_missing_package_is_told_in_one_sentence(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(UsageError, match=r"expected the package onnxscript, .*pip install 'pellucid\[export\]'"):
        export(ExportConfig(model="detect-n"))


def test_a_folder_in_the_way_is_left_alone(tmp_path):
    (tmp_path / "x.onnx").mkdir()
    with pytest.raises(UsageError, match=r"out: expected .* to be free"):
        export(ExportConfig(model="detect-n", out=str(tmp_path / "x.onnx")))


@pytest.mark.parametrize("place", ["/proc/x.onnx", "{}/file/x.onnx"])
def test_a_place_that_cannot_be_written_is_named_as_it_was_given(place, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=rf"^out: expected a place that can be written, got {place.format(tmp_path)} \(") as caught:
        export(ExportConfig(model="detect-n", out=place.format(tmp_path)))
    assert ".export-" not in str(caught.value)
