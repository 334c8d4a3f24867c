"""The facade does what the command line does."""

import numpy as np
import pytest

from pellucid.errors import UsageError
from pellucid.model import Model
from tests.train.conftest import make_squares


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_squares(tmp_path_factory.mktemp("model"), train=4, val=2)


def test_train_validate_predict_and_info(data, tmp_path):
    common = {"device": "cpu", "project": tmp_path, "plots": False, "workers": 0}
    model = Model("detect-n")
    assert len(model.names) == 80
    result = model.train(data=data, epochs=1, batch=2, imgsz=64, **common)
    assert model.names == ("kind0", "kind1")
    assert model.name.endswith("best.safetensors")
    assert "2 classes" in repr(model)
    scores = model.validate(data, **common)
    assert result.scores is not None
    assert scores.paths["e2e"].metrics == pytest.approx(result.scores.paths["e2e"].metrics, nan_ok=True)
    image = np.zeros((48, 64, 3), np.uint8)
    one = model.predict(image, conf=0.0, imgsz=64)
    streamed = list(model.predict([image], conf=0.0, imgsz=64, stream=True))
    assert len(one) == len(streamed) == 1
    assert len(one[0]) == len(streamed[0]) == 84
    assert model.info(imgsz=64)["nc"] == 2
    assert model.info()["imgsz"] == 64
    assert len(repr(scores)) < 2000


def test_settings_are_checked():
    with pytest.raises(UsageError, match="did you mean epochs"):
        Model("detect-n").train(data="x", epoch=3)
    with pytest.raises(UsageError, match="conf"):
        Model("detect-n").predict("x", conf=2.0)


@pytest.mark.parametrize("setting", [{"save": True}, {"save_txt": True}, {"project": "x"}, {"json": True}, {"model": "detect-s"}], ids=str)
def test_what_a_call_would_ignore_is_refused(setting):
    model, name = Model("detect-n"), next(iter(setting))
    with pytest.raises(UsageError, match=f"^{name}: expected settings of a call"):
        model.predict(np.zeros((8, 8, 3), np.uint8), **setting)
    if name in ("json", "model"):
        for call in (model.train, model.validate):
            with pytest.raises(UsageError, match=f"^{name}: "):
                call(data="x", **setting)
