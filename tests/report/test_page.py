"""The page of a run: made at the end of training and of val and by its verb, whole in one file, readable at any width."""

import json
import re
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from pellucid.cli import main
from pellucid.errors import DataError, MissingFileError
from pellucid.model import Model
from pellucid.report import make_page
from pellucid.report.details import at_recall
from pellucid.report.examples import judge, write_examples
from pellucid.report.parts import signed
from pellucid.report.svg import confusion, line_chart
from pellucid.types import Instances
from tests.chromium import browser, needs_browser
from tests.evaluate.fakes import instances, make_index
from tests.train.conftest import make_squares

SECTIONS = ("Data", "Training", "Scores", "Precision, recall, F1", "Who is taken for whom", "Classes", "Where it errs most", "Speed")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run of training on squares of two classes, one with a name that is not plain."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    place = tmp_path_factory.mktemp("report")
    data = make_squares(place / "squares", train=4, val=4)
    data.write_text(data.read_text().replace("kind0", '"<b>cup</b> & saucer"'))
    settings = {"epochs": 2, "imgsz": 64, "batch": 4, "workers": 0, "device": "cpu", "project": str(place / "runs")}
    result = Model("detect-n").train(data=str(data), **settings)
    torch.set_num_threads(threads)
    return result.run_dir


def test_the_page_tells_the_run(run):
    page = (run / "report.html").read_text()
    assert [title for title in SECTIONS if f"<h2>{title}</h2>" not in page] == []
    assert "<b>cup</b> &" not in page
    assert "&lt;b&gt;cup&lt;/b&gt; &amp; saucer" in page
    scores = json.loads((run / "scores.json").read_text())
    assert f"{scores['e2e']['box/ar100']:.3f}" in page
    assert scores["protocol"].split(";")[0] in page
    assert "torch" in page
    assert page.count("<svg") >= 7
    assert page.count("data:image/jpeg;base64,") >= 2 * 4 + 1


@pytest.mark.parametrize("best", [{"threshold": 0.37, "f1": 0.6}, {"threshold": 0.0, "f1": 0.003}], ids=["some", "chance"])
def test_each_threshold_says_which_it_is(best, run, tmp_path):
    """That of the matrix is fixed, that of the curves and of the pictures is where F1 is best."""
    folder = shutil.copytree(run, tmp_path / "run")
    details = json.loads((folder / "details.json").read_text())
    details["curves"]["best"] = best
    details["examples"]["threshold"] = best["threshold"] or 0.25
    (folder / "details.json").write_text(json.dumps(details))
    page = make_page(folder).read_text()
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))
    assert details["confusion"]["conf"] == 0.25
    assert words.count("Counted at the score threshold 0.25, which is the same in every run") == 1
    if best["f1"] > 0.1:
        assert words.count("judged at the score threshold 0.37 (that of the best F1)") == 2  # the worst, the best
        assert "in every run (that of the best F1 here is 0.37)" in words
        assert (words.count("best F1 at 0.37"), page.count('class="mark"')) == (1, 1)
    else:
        assert words.count("judged at the score threshold 0.25 and box IoU") == 2
        assert "F1 is nowhere above 0.003" in words
        assert "best F1" not in words
        assert 'class="mark"' not in page


def test_a_scoring_into_a_folder_of_an_earlier_one_leaves_nothing_of_that(tmp_path, capsys):
    data = make_squares(tmp_path / "squares", train=2, val=2)
    common = ["val", "model=detect-n", "imgsz=64", "workers=0", "device=cpu", f"project={tmp_path}", "name=v", "single_cls=true"]
    (tmp_path / "detect" / "v").mkdir(parents=True)
    (tmp_path / "detect" / "v" / "notes.txt").write_text("mine")
    assert main([*common, f"data={data}", "exist_ok=true"]) == 0
    written = {path.name for path in (tmp_path / "detect" / "v").rglob("*.*")}
    assert written >= {"report.html", "details.json", "predictions.json", "confusion.png", "worst-1-found.jpg", "notes.txt"}
    assert "look at" in capsys.readouterr().out
    assert main([*common, f"data={data}", "exist_ok=true", "plots=false", "report=false", "save_json=false"]) == 0
    left = {path.name for path in (tmp_path / "detect" / "v").rglob("*.*")}
    assert left == {"args.yaml", "env.json", "scores.json", "per_class.csv", "notes.txt"}
    assert "look at" not in capsys.readouterr().out


def test_a_scoring_does_not_take_the_place_of_a_training(run, capsys):
    data = run.parents[2] / "squares" / "data.yaml"
    before = (run / "args.yaml").read_text()
    words = [f"model={run}/weights/best.safetensors", f"data={data}", f"project={run.parents[1]}", f"name={run.name}", "exist_ok=true"]
    assert main(["val", *words]) == 2
    assert "name: expected another folder than that of a training" in capsys.readouterr().err
    assert (run / "args.yaml").read_text() == before


def test_a_scoring_that_is_refused_leaves_no_folder(tmp_path, capsys):
    data = make_squares(tmp_path / "squares", train=2, val=2)
    words = ["val", "model=detect-n", f"data={data}", "imgsz=64", "workers=0", "device=cpu", f"project={tmp_path / 'runs'}"]
    assert main(words) == 2
    assert "expected data with the model's 80 classes" in capsys.readouterr().err
    assert list((tmp_path / "runs").rglob("val*")) == []


def test_the_page_needs_nothing_else(run):
    page = (run / "report.html").read_text()
    assert re.findall(r"(?:src|href)=\"(?!data:)[^\"]*", page) == []
    assert not re.search(r"<script|@import|url\(|https?://", page)
    assert 'name="viewport"' in page


def test_the_verb_makes_the_same_page_from_the_folder_alone(run, capsys):
    before = (run / "report.html").read_text()
    (run / "report.html").unlink()
    assert main(["report", f"run={run}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": str(run / "report.html")}
    assert (run / "report.html").read_text() == before


LAYOUT = """(() => { const root = document.documentElement; return {
  over: root.scrollWidth - innerWidth, wide: innerWidth,
  broken: [...document.images].filter(image => !image.naturalWidth).length, pictures: document.images.length,
  asked: performance.getEntriesByType('resource').map(entry => entry.name).filter(name => !name.startsWith('data:')),
  columns: new Set([...document.querySelectorAll('.grid figure')].map(figure => figure.getBoundingClientRect().left)).size,
  paper: getComputedStyle(document.body).backgroundColor } })()"""


@needs_browser
def test_in_a_browser_nothing_runs_over_at_any_width(run, tmp_path):
    with browser(tmp_path / "profile") as tab:
        seen = {}
        for width in (1200, 390):
            tab.open((run / "report.html").as_uri(), width)
            seen[width] = tab.ask(LAYOUT)
            words = tab.ask("document.body.innerText")
            assert all(title in words for title in SECTIONS)
            picture = tab.picture(tmp_path / f"{width}.png", whole=True)
            with Image.open(picture) as image:
                assert image.width == width
                assert image.height > 2000
                assert np.asarray(image.convert("L")).std() > 10
        tab.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        dark = tab.ask(LAYOUT)["paper"]
    for width, layout in seen.items():
        assert (layout["over"], layout["wide"], layout["broken"], layout["asked"]) == (0, width, 0, [])
        assert layout["pictures"] >= 9
    assert (seen[1200]["columns"], seen[390]["columns"]) == (3, 1)
    assert dark != seen[390]["paper"]


def test_a_folder_that_is_no_run_is_named(tmp_path, capsys):
    with pytest.raises(MissingFileError, match="expected a run folder"):
        make_page(tmp_path)
    (tmp_path / "scores.json").write_text("[1")
    with pytest.raises(DataError, match=r"scores\.json: expected the JSON object"):
        make_page(tmp_path)
    assert main(["report"]) == 2
    assert "run: expected a value" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("results.csv", "a,b\n1,2\n"),
        ("results.csv", "epoch,b\n1,x\n"),
        ("scores.json", '{"e2e": {"per_class": [3], "speed": {}}}'),
        ("scores.json", '{"e2e": {"per_class": [], "speed": 3, "box/ap": "high"}}'),
        ("details.json", '{"curves": {"classes": [{}]}}'),
        ("details.json", '{"examples": {"worst": [1]}}'),
        ("details.json", '{"splits": 4, "about": []}'),
        ("env.json", '{"packages": [1], "gpus": [2]}'),
        ("args.yaml", "- 1\n"),
        ("examples/worst-1-truth.jpg", "no picture"),
    ],
)
def test_damaged_files_are_named_in_a_sentence(name, content, run, tmp_path, capsys):
    folder = shutil.copytree(run, tmp_path / "run")
    assert (folder / name).is_file()
    (folder / name).write_text(content)
    assert main(["report", f"run={folder}"]) == 3
    said = capsys.readouterr().err
    assert "expected" in said
    assert str(folder) in said
    assert said.count("\n") == 1


def test_a_run_without_scores_has_its_curves(tmp_path):
    (tmp_path / "results.csv").write_text("epoch,train/box,e2e/box/ap,lr,images_per_s,wait\n1,2.5,0.1,0.01,9,0.1\n2,2.25,0.2,0.01,9,0.1\n")
    page = make_page(tmp_path).read_text()
    assert "loss: box" in page
    assert "<h2>Scores</h2>" not in page
    assert "training pictures a second" in page


def test_a_run_too_short_to_be_timed_shows_no_rate(tmp_path):
    (tmp_path / "results.csv").write_text("epoch,train/box,e2e/box/ap,lr,images_per_s,wait\n1,2.5,0.1,0.00001,nan,0.1\n")
    page = make_page(tmp_path).read_text()
    assert "learning rate" in page
    assert ">1e-05<" in page  # on the axis of the rate
    assert [word for word in ("training pictures a second", ">nan<", "no finite values") if word in page] == []


def test_findings_are_judged_by_class_and_overlap():
    truth = instances([0, 1, 1], [[0, 0, 10, 10], [20, 0, 30, 10], [40, 0, 50, 10]], [0, 0, 0])
    truth = Instances(truth.labels, truth.shapes, ignore=torch.tensor([False, False, True]))
    found = instances([0, 0, 1, 1], [[0, 0, 10, 9], [20, 0, 30, 10], [40, 0, 50, 10], [0, 0, 10, 10]], [0.9, 0.8, 0.7, 0.1])
    one = judge(0, found, truth, 0.5)
    assert one.taken.tolist() == [0, -1, -2]
    assert (one.hits, one.false, one.missed, one.f1) == (1, 1, 1, 0.5)
    nothing = instances()
    assert judge(0, nothing, nothing, 0.5).f1 == 1.0


def test_the_worst_come_first(tmp_path):
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for path in paths:
        Image.new("RGB", (64, 64), (90, 90, 90)).save(path)
    index = make_index([[(0, [4, 4, 30, 30])]] * 3, size=(64, 64))
    object.__setattr__(index, "path", lambda row: paths[row])
    boxes = ([[4, 4, 30, 30]], [[4, 4, 30, 30], [40, 40, 60, 60]], [[40, 40, 60, 60]])
    found = {row: instances([0] * len(own), own, [0.9] * len(own)) for row, own in enumerate(boxes)}
    told = write_examples(tmp_path, found, index, 0.5)
    assert [one["picture"] for one in told["worst"]] == ["2.png", "1.png"]
    assert [one["picture"] for one in told["best"]] == ["0.png"]
    assert told["worst"][0] == {
        "picture": "2.png",
        "files": [f"examples/worst-1-{kind}.jpg" for kind in ("truth", "found")],
        "hits": 0,
        "missed": 1,
        "false": 1,
        "f1": 0.0,
    }
    with Image.open(tmp_path / "examples" / "worst-1-truth.jpg") as image:
        red, green, _ = np.asarray(image, int)[150, 24:32].max(0)
    assert red > green + 80, "a missed object has a red side"


def test_precision_at_a_recall_is_the_best_that_reaches_it():
    precision, recall = np.array([0.2, 0.5, 0.4, 1.0]), np.array([0.9, 0.6, 0.5, 0.1])
    curve = at_recall(precision, recall)
    assert (curve[0], curve[10], curve[11], curve[60], curve[90]) == (1.0, 1.0, 0.5, 0.5, 0.2)
    assert np.isnan(curve[91:]).all()


def test_charts_are_drawn_where_the_values_are():
    chart = line_chart({"a": ([0, 1, 2], [0.0, 0.5, float("nan")])}, "t", "x", (0, 1), (0, 2))
    assert 'points="44.0,188.0 196.0,100.0"' in chart
    assert "no finite values" in line_chart({"a": ([1], [float("nan")])}, "t", "x")
    many = line_chart({f"c{n}": ([0, 1], [0, n]) for n in range(12)}, "t", "x", mean="c11")
    assert (many.count("line faint"), many.count("line mean")) == (11, 1)


@pytest.mark.parametrize(("x", "place", "side"), [(0.25, 120.0, "start"), (0.75, 272.0, "end")])
def test_a_mark_stands_where_its_value_is(x, place, side):
    chart = line_chart({"a": ([0, 1], [0, 1])}, "t", "x", (0, 1), (0, 1), mark=(x, "here <"))
    assert f'class="mark" d="M{place:.1f} ' in chart
    assert re.search(rf'x="{place + (5 if side == "start" else -5):.1f}" y="21" text-anchor="{side}">here &lt;<', chart)
    assert "mark" not in line_chart({"a": ([0, 1], [0, 1])}, "t", "x", (0, 1), (0, 1))


def test_the_matrix_shades_each_true_class_by_itself():
    drawn = confusion([[90, 10, 0], [0, 0, 3], [1, 0, 0]], ["a", "b", "background"])
    assert "a found as b: 10 (10%)" in drawn
    assert "b found as background: 3 (100%)" in drawn
    assert drawn.count("<rect") == 9


def test_long_numbers_have_room_on_the_left():
    """Of seven signs at 11 px each is about 6.2 wide; they end at x = 38."""
    short, long = (line_chart({"box": ([1, 2, 3], values)}, "loss", "epoch") for values in ([1, 2, 3], [0.007117, 0.00712, 0.007123]))
    edges = [float(re.search(r'viewBox="(-?[\d.]+) ', chart)[1]) for chart in (short, long)]
    assert edges[0] == 0
    labels = re.findall(r'text-anchor="end">([^<]+)<', long)
    assert len(set(labels)) == len(labels) >= 3
    assert 38 - edges[1] >= 6.2 * max(map(len, labels)) > 38


def test_a_gap_is_as_fine_as_that_of_the_command_line():
    assert [signed(value) for value in (-0.0003, 0.0003, -0.00001, 0.25)] == ["−0.0003", "+0.0003", "+0.0000", "+0.2500"]
