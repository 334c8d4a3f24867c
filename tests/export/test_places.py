"""Where an export may be written: on nothing, or on an earlier one."""

import json

import onnx
import pytest

from pellucid.config import ExportConfig
from pellucid.errors import UsageError
from pellucid.export.facts import KEY
from pellucid.export.write import _target, _write_openvino


def asked(path, form="onnx"):
    return ExportConfig(model="trees-detect-n", format=form, out=str(path))


def assert_refused(path, form="onnx"):
    with pytest.raises(UsageError, match=r"^out: expected .* to be free or an earlier export, got something else; choose another name"):
        _target(asked(path, form))


def test_a_file_of_others_is_refused(trees, tmp_path):
    foreign = onnx.load(trees.path)
    del foreign.metadata_props[:]
    for name, content in {"mine": b"mine\n", "empty": b"", "foreign": foreign.SerializeToString()}.items():
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(content)
        assert_refused(path)
        assert path.read_bytes() == content
    (tmp_path / "free.differs.onnx").write_text("mine")
    assert_refused(tmp_path / "free.onnx")


def test_a_folder_of_others_is_refused(tmp_path):
    folder = tmp_path / "a_openvino"
    folder.mkdir()
    assert _target(asked(folder, "openvino")) == folder
    for name, text in {"notes.txt": "mine", "model.bin": "mine", "model.xml": '<net name="x"></net>'}.items():
        (folder / name).write_text(text)
        assert_refused(folder, "openvino")


def test_an_earlier_export_is_replaced_whatever_its_version(trees, tmp_path):
    assert _target(asked(tmp_path / "new.onnx")) == tmp_path / "new.onnx"
    model = onnx.load(trees.path)
    del model.metadata_props[:]
    onnx.helper.set_model_props(model, {KEY: json.dumps({"form": 0})})
    onnx.save(model, tmp_path / "old.onnx")
    assert _target(asked(tmp_path / "old.onnx")) == tmp_path / "old.onnx"
    _write_openvino(tmp_path / "old_openvino", trees.path.read_bytes(), trees.facts)
    assert _target(asked(tmp_path / "old_openvino", "openvino")) == tmp_path / "old_openvino"
