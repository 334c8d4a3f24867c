"""Exported files in the place of weights: the same pictures give the same objects, scores and words."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from PIL import Image

from pellucid.cli import main
from pellucid.config import BenchConfig
from pellucid.data.samples import sample_path
from pellucid.errors import CheckpointError, MissingFileError, UsageError
from pellucid.export.facts import KEY, Facts
from pellucid.export.write import _write_openvino
from pellucid.geometry.affine import fit_longest
from pellucid.model import Model, bench
from pellucid.zoo import Card, open_model

PICTURES = sample_path("trees").parent / "images" / "val"
EXAMPLE = Path(__file__).parents[2] / "examples" / "onnx_numpy.py"


@pytest.fixture(scope="module")
def folder(trees, tmp_path_factory):
    """The same network as an OpenVINO folder."""
    path = tmp_path_factory.mktemp("openvino") / "trees_openvino"
    _write_openvino(path, trees.path.read_bytes(), trees.facts)
    return path


def assert_alike(ours, theirs):
    assert [result.path for result in ours] == [result.path for result in theirs]
    for a, b in zip(ours, theirs, strict=True):
        assert len(a) == len(b) > 5
        assert a.names == b.names
        assert a.category_ids == b.category_ids
        assert torch.equal(a.boxes.cls, b.boxes.cls)
        assert torch.allclose(a.boxes.conf, b.boxes.conf, atol=1e-3)
        assert torch.allclose(a.boxes.xyxy, b.boxes.xyxy, atol=0.1)


def test_what_was_written_says_what_was_measured(trees):
    assert trees.gaps.faults == trees.gaps.warnings == []
    assert trees.gaps.sure > 50
    said = "\n".join(trees.lines())
    assert "(batch, 3, 416, 416) uint8 RGB -> rows" in said
    assert "boxes" in said
    assert json.loads(json.dumps(trees.to_dict()))["parity"]["compared"] == trees.gaps.compared


def test_a_file_says_all_that_a_host_needs(trees):
    facts = json.loads({item.key: item.value for item in onnx.load(trees.path).metadata_props}[KEY])
    assert facts["names"] == ["tree"]
    assert facts["layout"] == {"boxes": [0, 4], "score": [4, 5], "class": [5, 6]}
    assert (facts["task"], facts["imgsz"], facts["stride"]) == ("detect", 416, 32)
    assert facts["letterbox"]["fill"] == 114
    assert facts["input"]["color"] == "RGB"


def test_points_are_described():
    _, card = open_model("quokka-pose-n")
    facts = json.loads(Facts(card, "o2o", False, None, 300, 18, {"boxes": (4,), "keypoints": (7, 3)}, ()).to_json())
    assert facts["kpt_shape"] == [7, 3]
    assert len(facts["keypoints"]["sigmas"]) == len(facts["keypoints"]["names"]) == 7
    assert facts["layout"]["keypoints"] == [6, 27]


@pytest.mark.parametrize("settings", [{}, {"batch": 3}, {"tile": 300, "overlap": 60}, {"max_det": 9, "conf": 0.1}], ids=str)
def test_predictions_are_those_of_torch(trees, folder, settings):
    torch_model = Model("trees-detect-n").predict(PICTURES, device="cpu", **settings)
    assert len(torch_model) == 3
    assert_alike(torch_model, Model(trees.path).predict(PICTURES, **settings))
    assert_alike(torch_model, Model(folder).predict(PICTURES, **settings))


def test_scores_are_those_of_torch(trees, tmp_path):
    common = {"data": "trees", "workers": 0, "plots": False, "project": str(tmp_path)}
    ours = Model("trees-detect-n").validate(**common, device="cpu")
    theirs = Model(trees.path).validate(**common)
    assert set(theirs.paths) == {"e2e"}
    assert theirs.gap is None
    assert theirs.paths["e2e"].metrics == pytest.approx(ours.paths["e2e"].metrics, abs=2e-3, nan_ok=True)
    assert theirs.paths["e2e"].metrics["box/ap50"] > 0.3
    assert "exported float32" in theirs.protocol
    assert "; e2e: top-k of the one-to-one branch; precision" in theirs.protocol
    assert "; e2e: top-k of the one-to-one branch; nms: one-to-many branch, IoU 0.7; precision" in ours.protocol


def test_a_file_is_timed_as_weights_are(trees):
    figures = bench(BenchConfig(model=str(trees.path), repeats=3))
    assert figures["task"] == "detect"
    assert figures["objects"] > 0
    assert figures["ms"]["network"]["median"] > 0
    with pytest.raises(UsageError, match="path"):
        bench(BenchConfig(model=str(trees.path), path="nms"))


def always_there(path):
    """A file of the one-to-many branch that finds the same two trees on every picture."""
    facts = Facts(Card("detect", "n", ("tree",), (0,), 64), "o2m", False, 1, 300, 18, {"boxes": (4,)}, ())
    values = {"boxes": np.float32([[[8, 8, 40, 40], [9, 8, 41, 40], [2, 2, 9, 9]]]), "scores": np.float32([[[0.9], [0.8], [0.6]]])}
    nodes = [onnx.helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(value)) for name, value in values.items()]
    given = [onnx.helper.make_tensor_value_info("images", onnx.TensorProto.UINT8, (1, 3, 64, 64))]
    told = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, value.shape) for name, value in values.items()]
    graph = onnx.helper.make_graph(nodes, "trees", given, told)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    onnx.helper.set_model_props(model, {KEY: facts.to_json()})
    onnx.save(model, path)


def test_the_path_of_a_file_is_taken_where_none_is_named(tmp_path, capsys):
    path = tmp_path / "many.onnx"
    always_there(path)
    assert main(["predict", f"model={path}", f"source={PICTURES}", f"project={tmp_path}", "save=false", "--json"]) == 0
    plain = [json.loads(line)["objects"] for line in capsys.readouterr().out.splitlines()]
    named = [result.to_dict()["objects"] for result in Model(path).predict(PICTURES, path="nms")]
    assert plain == named
    assert [len(objects) for objects in plain] == [2, 2, 2]
    assert bench(BenchConfig(model=str(path), repeats=3))["path"] == "nms"
    with pytest.raises(UsageError, match=r"path: expected nms, the one branch in the exported .*got e2e"):
        Model(path).predict(PICTURES, path="e2e")


def test_info_of_a_file(trees, folder, capsys):
    assert main(["info", f"model={folder}", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["task"], said["imgsz"], said["head"], said["batch"]) == ("detect", 416, "o2o", "any")
    assert Model(trees.path).info()["outputs"] == "rows"
    with pytest.raises(UsageError, match="imgsz: expected 416"):
        Model(trees.path).info(imgsz=640)


@pytest.mark.parametrize(
    "settings", [{"imgsz": 320}, {"device": "0"}, {"path": "nms"}, {"max_det": 301}, {"path": "nms", "iou": 0.5}], ids=str
)
def test_what_the_file_has_decided_is_refused(trees, settings):
    with pytest.raises(UsageError, match=f"^{next(iter(settings))}: expected "):
        Model(trees.path).predict(PICTURES, **settings)


def test_what_a_file_cannot_do_is_refused(trees, tmp_path):
    model = Model(trees.path)
    with pytest.raises(UsageError, match="expected weights"):
        model.export("onnx")
    with pytest.raises(UsageError, match="expected a weights file"):
        model.train(data="trees", project=tmp_path)
    with pytest.raises(UsageError, match="precision: expected auto"):
        model.validate("trees", precision="bf16")


def changed(trees, path, change):
    """A copy of the file whose facts were changed."""
    model = onnx.load(trees.path)
    facts = {item.key: item.value for item in model.metadata_props}
    del model.metadata_props[:]
    onnx.helper.set_model_props(model, change(facts))
    onnx.save(model, path)


def test_files_of_others_are_refused_in_one_sentence(trees, tmp_path):
    path = tmp_path / "x.onnx"
    with pytest.raises(MissingFileError, match="found none"):
        Model(path)
    with pytest.raises(MissingFileError, match=r"model\.xml"):
        Model(tmp_path / "x_openvino")
    spoiled = [b"", b"hello", trees.path.read_bytes()[:5000]]
    for content in spoiled:
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"cannot be run|no card"):
            Model(path)
    (tmp_path / "x_openvino").mkdir()
    (tmp_path / "x_openvino" / "model.xml").write_text("hello")
    with pytest.raises(CheckpointError, match="expected a model that"):
        Model(tmp_path / "x_openvino")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda facts: {}, "no card inside"),
        (lambda facts: {KEY: "{"}, "got another"),
        (lambda facts: {KEY: "[]"}, "got another"),
        (lambda facts: {KEY: json.dumps({**json.loads(facts[KEY]), "form": 2})}, "this version reads 1"),
        (lambda facts: {KEY: json.dumps({**json.loads(facts[KEY]), "head": "x"})}, "got another"),
        (lambda facts: {KEY: json.dumps({**json.loads(facts[KEY]), "columns": {"boxes": [4], "x": [3]}})}, "got another"),
        (lambda facts: {KEY: facts[KEY].replace('"task": "detect"', '"task": "segment"')}, "got another"),
        (lambda facts: {KEY: facts[KEY].replace('"imgsz": 416', '"imgsz": 448')}, "as its card says"),
    ],
    ids=range(8),
)
def test_cards_that_do_not_fit_are_refused(trees, tmp_path, change, said):
    changed(trees, tmp_path / "x.onnx", change)
    with pytest.raises(CheckpointError, match=said):
        Model(tmp_path / "x.onnx")


def resized_by_pillow(image, size):
    """As the example does it; the library's own resize gives the same pixels to one grey level."""
    height, width = fit_longest(*image.shape[:2], size)
    return np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR))


def at_home(folder):
    """The environment of a user whose home is empty, and who has said nothing of telemetry."""
    named = ("ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "CI")
    return {**{name: value for name, value in os.environ.items() if name not in named}, "HOME": str(folder)}


def kept_at_home(folder):
    return [
        str(path.relative_to(folder)) for path in folder.rglob("*") if re.search("onnxruntime|openvino|intel|microsoft", str(path), re.I)
    ]


def test_a_runtime_tells_its_maker_nothing(trees, tmp_path):
    """Where telemetry is on, an identity lies in the home: of onnxruntime once a file is open, of openvino once imported."""
    code = (
        "import sys; from pathlib import Path; from pellucid import Model; from pellucid.export import write, open_exported;"
        "file, made, picture = map(Path, sys.argv[1:]); facts = open_exported(file)[0].facts;"
        "write._write_openvino(made, file.read_bytes(), facts);"
        "print(len(Model(file).predict(picture)[0]), len(Model(made).predict(picture)[0]))"
    )
    home = tmp_path / "home"
    home.mkdir()
    line = [sys.executable, "-c", code, str(trees.path), str(tmp_path / "x_openvino"), str(min(PICTURES.iterdir()))]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, env=at_home(home))
    assert done.returncode == 0, done.stderr
    assert min(map(int, done.stdout.split())) > 5
    assert kept_at_home(home) == []


def test_the_example_without_torch_finds_the_same(trees, monkeypatch, tmp_path):
    monkeypatch.setattr("pellucid.data.images.resize_longest", resized_by_pillow)
    picture = min(PICTURES.iterdir())
    block = "import sys, runpy; sys.modules['torch'] = sys.modules['pellucid'] = None; sys.argv = sys.argv[1:]"
    line = [sys.executable, "-c", f"{block}; runpy.run_path(sys.argv[0], run_name='__main__')", str(EXAMPLE), str(trees.path), str(picture)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, env=at_home(tmp_path))
    assert done.returncode == 0, done.stderr
    assert kept_at_home(tmp_path) == []
    found = [json.loads(row) for row in done.stdout.splitlines()]
    (result,) = Model(trees.path).predict(picture)
    told = result.to_dict()["objects"]
    assert len(found) == len(told) > 5
    for a, b in zip(found, told, strict=True):
        assert (a["name"], a["class"]) == (b["name"], b["class"])
        assert a["score"] == pytest.approx(b["score"], abs=1e-5)
        assert a["box"] == pytest.approx(b["box"], abs=0.01)
    assert len(EXAMPLE.read_text().splitlines()) <= 45


def test_the_example_says_what_it_takes():
    done = subprocess.run([sys.executable, str(EXAMPLE), "x.onnx"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.strip() == "expected two arguments, an exported model and a picture: onnx_numpy.py model.onnx picture.jpg"
