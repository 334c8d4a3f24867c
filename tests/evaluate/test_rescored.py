"""predictions.json of a run, scored by pycocotools against the user's own file: the printed figures, whatever the ids and names."""

import json
import shutil
from pathlib import Path

import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from pellucid import Model
from pellucid.data import samples
from pellucid.zoo import open_model

HERE = Path(samples.__file__).parent
NAMES = ("Zellkern α.png", "b c.png", "7-x_y.png")  # not numbers, not in the order of the ids
IDS = (7, 1, 3)
CATEGORY = 5
STATS = {"bbox": "box", "segm": "mask", "keypoints": "pose"}


def renumbered(sample, file, folder):
    """Up to three pictures of a sample as a COCO set with ids and names of a user's kind; the path of its annotation file."""
    content = json.loads((HERE / sample / "annotations" / f"{file}_val.json").read_text())
    images = content["images"][: len(IDS)]
    ids = {image["id"]: new for image, new in zip(images, IDS, strict=False)}
    (folder / "val").mkdir(parents=True)
    (folder / "annotations").mkdir()
    for image, name in zip(images, NAMES, strict=False):
        target = Path(name).with_suffix(Path(image["file_name"]).suffix).name
        shutil.copy(HERE / sample / "val" / image["file_name"], folder / "val" / target)
        image |= {"id": ids[image["id"]], "file_name": target}
    kept = [note for note in content["annotations"] if note["image_id"] in ids]
    for number, note in enumerate(kept, 100):
        note |= {"id": number, "image_id": ids[note["image_id"]], "category_id": CATEGORY}
    content["categories"][0]["id"] = CATEGORY
    path = folder / "annotations" / f"{file}_val.json"
    path.write_text(json.dumps({**content, "images": images, "annotations": kept}, ensure_ascii=False))
    return path


def rescored(truth, written, kind):
    truth = COCO(str(truth))
    tool = COCOeval(truth, truth.loadRes(str(written)), kind)
    if kind == "keypoints":
        count = len(truth.cats[CATEGORY]["keypoints"])
        tool.params.kpt_oks_sigmas = tool.params.kpt_oks_sigmas[:count] * 0 + 1 / count
    tool.evaluate()
    tool.accumulate()
    tool.summarize()
    return tool.stats


@pytest.mark.parametrize(
    ("model", "sample", "file", "kinds"),
    [("nuclei-segment-n", "nuclei", "instances", ("bbox", "segm")), ("quokka-pose-n", "quokka", "keypoints", ("bbox", "keypoints"))],
)
def test_the_users_own_file_gives_the_printed_figures(model, sample, file, kinds, tmp_path, monkeypatch):
    truth = renumbered(sample, file, tmp_path / "set")
    monkeypatch.chdir(tmp_path)
    scores = Model(model).validate(tmp_path / "set", device="cpu", workers=0, plots=False, report=False)
    (written,) = tmp_path.glob("runs/*/val/predictions.json")
    records = json.loads(written.read_text())
    assert {record["category_id"] for record in records} == {CATEGORY}
    assert {record["image_id"] for record in records} == {image["id"] for image in json.loads(truth.read_text())["images"]} <= set(IDS)
    printed = scores.paths["e2e"].metrics
    for kind in kinds:
        again = rescored(truth, written, kind)
        assert 0.2 < again[0] <= 1
        for place, name in enumerate(("ap", "ap50", "ap75")):
            assert printed[f"{STATS[kind]}/{name}"] == pytest.approx(again[place], abs=1e-6)


def test_sets_without_ids_of_their_own_too(tmp_path, monkeypatch):
    """YOLO files have no ids: the written truth has those of the predictions, and names the pictures."""
    for part in ("images", "labels"):
        shutil.copytree(HERE / "trees" / part / "val", tmp_path / part / "val")
    for number, old in enumerate(sorted((tmp_path / "images" / "val").iterdir())):
        for path in (old, (tmp_path / "labels" / "val" / old.name).with_suffix(".txt")):
            path.rename(path.with_name(Path(NAMES[number]).stem + path.suffix))
    for label in (tmp_path / "labels" / "val").iterdir():
        label.write_text("".join(f"{CATEGORY} {row.partition(' ')[2]}\n" for row in label.read_text().splitlines()))
    (tmp_path / "data.yaml").write_text(f"path: .\ntrain: images/val\nval: images/val\nnames: {{{CATEGORY}: tree}}\n")
    monkeypatch.chdir(tmp_path)
    assert open_model("trees-detect-n")[1].names == ("tree",)
    scores = Model("trees-detect-n").validate("data.yaml", device="cpu", workers=0, plots=False, report=False)
    metric = scores.paths["e2e"].coco
    again = rescored(metric.write_ground_truth(tmp_path / "truth.json"), tmp_path / "runs" / "detect" / "val" / "predictions.json", "bbox")
    assert again[0] > 0.05
    assert scores.paths["e2e"].metrics["box/ap"] == pytest.approx(again[0], abs=1e-6)
    named = {Path(image["file_name"]).stem for image in json.loads((tmp_path / "truth.json").read_text())["images"]}
    assert named == {Path(name).stem for name in NAMES}
