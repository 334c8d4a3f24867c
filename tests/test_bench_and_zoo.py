"""`pellucid bench` times the road of every picture; `pellucid zoo` says of shipped weights what is true."""

import json

import pytest

from pellucid.cli import main
from pellucid.model import Model
from pellucid.tasks import TASKS
from pellucid.zoo import load_weights, shipped_names
from pellucid.zoo.weights import HERE


def said(capsys, *words):
    code = main(list(words))
    out = capsys.readouterr()
    return code, out.out, out.err


def test_bench_times_every_stage(capsys):
    words = ["model=trees-detect-n", "imgsz=128", "batch=2", "device=cpu", "repeats=4", "conf=0.01"]
    code, out, _ = said(capsys, "bench", *words, "--json")
    figures = json.loads(out)
    assert code == 0
    assert {"model", "task", "imgsz", "batch", "precision", "path", "device", "threads", "torch", "picture"} <= set(figures)
    assert (figures["imgsz"], figures["batch"], figures["precision"], figures["repeats"]) == (128, 2, "32", 4)
    stages = figures["ms"]
    assert list(stages) == ["pre", "network", "post", "total"]
    for row in stages.values():
        assert 0 < row["p10"] <= row["median"] <= row["p90"]
    assert sum(stages[name]["share"] for name in ("pre", "network", "post")) == pytest.approx(1, abs=1e-3)
    assert stages["network"]["share"] > 0.3
    assert figures["images_per_s"] > 0
    assert figures["objects"] > 0
    code, out, _ = said(capsys, "bench", *words)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]][1:5] == ["pre", "network", "post", "total"]


def test_bench_does_what_its_settings_say(capsys, tmp_path):
    base = ["bench", "model=detect-n", "device=cpu", "repeats=3", "--json"]
    small, large = (json.loads(said(capsys, *base, f"imgsz={size}")[1]) for size in (64, 320))
    assert large["ms"]["network"]["median"] > small["ms"]["network"]["median"]
    nms = json.loads(said(capsys, *base, "imgsz=64", "path=nms", "precision=bf16", "conf=0")[1])
    assert (nms["path"], nms["precision"], nms["objects"] > 0) == ("nms", "bf16", True)


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["model=detect-n", "repeats=1"], 2, "repeats: expected"),
        (["imgsz=64"], 2, "model: expected a value"),
        (["model=detect-n", "precision=16", "device=cpu"], 2, "precision: expected 32, bf16 or auto"),
        (["model=detect-n", "source=/no/picture.jpg", "device=cpu"], 3, "/no/picture.jpg"),
    ],
)
def test_mistakes_are_one_sentence(words, code, part, capsys):
    found, out, err = said(capsys, "bench", *words)
    assert (found, out) == (code, "")
    assert part in err
    assert err.count("\n") == 1


def test_the_zoo_has_a_row_for_all_that_ships(capsys):
    code, out, _ = said(capsys, "zoo", "--json")
    rows = {row["name"]: row for row in map(json.loads, out.splitlines())}
    assert code == 0
    assert list(rows) == shipped_names() != []
    for name, row in rows.items():
        card = load_weights(HERE / f"{name}.safetensors")[1]
        assert (row["task"], tuple(row["classes"]), row["imgsz"]) == (card.task, card.names, card.imgsz)
        text = (HERE / f"{name}.md").read_text(encoding="utf-8").split("```")[0]
        assert f"Licence: {row['licence']}" in text
        assert f"data={row['scored_on']['data']}" in text
        assert len(row["trained_on"]) > 20
        assert set(row["scores"]) == {"e2e", "nms"}
        for found in row["scores"].values():
            assert set(found) <= {f"{metric}/{kind}" for metric in TASKS[card.task]().metrics for kind in ("ap", "ap50")}
            assert all(f"{value:.3f}" in text for value in found.values())
    shown = said(capsys, "zoo")[1]
    assert all(name in shown and row["trained_on"] in shown for name, row in rows.items())


def test_a_score_of_the_zoo_is_what_val_says(capsys, tmp_path):
    row = next(row for row in map(json.loads, said(capsys, "zoo", "--json")[1].splitlines()) if row["name"] == "nuclei-obb-n")
    settings = {"device": "cpu", "workers": 0, "plots": False, "project": tmp_path, "imgsz": row["scored_on"]["imgsz"]}
    scores = Model(row["name"]).validate(row["scored_on"]["data"], **settings)
    for path, found in row["scores"].items():
        for metric, value in found.items():
            assert scores.paths[path].metrics[metric] == pytest.approx(value, abs=2e-3)
