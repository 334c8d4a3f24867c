"""The command line: both spellings, files, did-you-mean, exit codes, machine-readable forms."""

import json
import math
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pellucid
from pellucid import cli
from pellucid.cli import VERBS, main, parser_of, read_settings
from pellucid.cli.use import NO_TRUTH, ZERO
from pellucid.config import EnvConfig, PredictConfig, TrainConfig, ValConfig, merged
from pellucid.config.groups import FEW, GROUPS
from pellucid.errors import PellucidError, UsageError
from pellucid.train.run import TrainResult
from pellucid.zoo import open_model
from tests.train.conftest import make_squares


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_squares(tmp_path_factory.mktemp("cli"), train=4, val=2)


def said(capsys, *words):
    """Exit code, stdout and stderr of a command."""
    code = main([str(word) for word in words])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_both_spellings_and_switches_mean_the_same():
    wanted = {"model": "detect-n", "lr0": 1e-3, "json": True, "workers": None, "exist_ok": False, "close_mosaic": 3}
    spelled = ["model=detect-n", "lr0=1e-3", "json=yes", "workers=none", "exist_ok=false", "close_mosaic=3"]
    dashed = ["--model", "detect-n", "--lr0=1e-3", "--json", "--workers", "none", "--exist-ok", "no", "--close-mosaic", "3"]
    assert read_settings("train", spelled) == read_settings("train", dashed) == wanted
    assert read_settings("predict", ["classes=0,3"]) == read_settings("predict", ["classes=[0, 3]"]) == {"classes": (0, 3)}
    assert read_settings("predict", ["classes=fire truck, no,3"]) == {"classes": ("fire truck", "no", 3)}
    assert read_settings("val", ["precision=32", "device=0", "name=7"]) == {"precision": "32", "device": "0", "name": "7"}


def test_words_win_over_the_file_and_a_file_is_checked(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("epochs: 3\nbatch: 4\nprecision: 32\ndevice: 0\nmosaic: 0.5\n")
    assert read_settings("train", ["batch=9", f"config={file}"]) == {
        "epochs": 3,
        "batch": 9,
        "precision": "32",
        "device": "0",
        "mosaic": 0.5,
    }
    file.write_text("epoch: 3\n")
    with pytest.raises(UsageError, match=r"a.yaml: unknown setting 'epoch': did you mean epochs\?"):
        read_settings("train", [f"config={file}"])
    file.write_text("- 1\n")
    with pytest.raises(UsageError, match="got list"):
        read_settings("train", [f"config={file}"])
    for broken in ("{ : :", "[" * 5000):
        file.write_text(broken)
        with pytest.raises(UsageError, match="expected YAML"):
            read_settings("train", [f"config={file}"])
    file.write_text("epochs: 2024-01-01\nname: 2024-01-01\n")
    with pytest.raises(UsageError, match="epochs: expected a whole number"):
        read_settings("train", [f"config={file}"])
    file.write_text("classes: [0, 1.5]\n")
    with pytest.raises(UsageError, match=r"classes: expected ids or names as in 0,3 or cat,dog or none, got '\[0, 1\.5\]'"):
        read_settings("predict", [f"config={file}"])
    file.write_text("classes: [0, cat]\n")
    assert read_settings("predict", [f"config={file}"]) == {"classes": (0, "cat")}


@pytest.mark.parametrize("name", VERBS)
def test_help_shows_every_field_with_its_line_and_an_example(name, capsys):
    code, out, _ = said(capsys, *name.split(), "--help")
    flat = " ".join(out.split())
    assert code == 0
    assert " ".join(VERBS[name].example.split()) in flat
    for field in fields(VERBS[name].config):
        assert f"--{field.name} " in out
    helps = {action.dest: action.help for action in parser_of(name)._actions}
    assert all(helps[field.name] for field in fields(VERBS[name].config))


def test_many_settings_stand_under_headings_common_ones_first(capsys, monkeypatch):
    named = [name for names in GROUPS.values() for name in names]
    assert len(named) == len(set(named))
    assert {name for verb in VERBS.values() if len(fields(verb.config)) > FEW for name in all_names(verb)} == set(named)
    monkeypatch.setenv("COLUMNS", "80")
    for name, verb in VERBS.items():
        out = said(capsys, *name.split(), "--help")[1]
        assert max(map(len, out.splitlines())) <= 80
        assert "null" not in out
        headings = re.findall(r"^([A-Z][a-z ]+):$", out, re.MULTILINE)
        shown = [key for key in re.findall(r"^  --(\w+) ", out, re.MULTILINE) if key != "config"]
        assert sorted(shown) == sorted(all_names(verb)), name
        if len(shown) <= FEW:
            assert (headings, shown) == ([], all_names(verb))
        else:
            assert headings == [heading for heading, names in GROUPS.items() if set(names) & set(shown)]
            assert shown == [key for key in named if key in shown], name
    train = said(capsys, "train", "--help")[1]
    assert train.index("\nSchedule:") < train.index("--epochs N") < train.index("--patience N") < train.index("\nOptimizer:")


def all_names(verb):
    return [field.name for field in fields(verb.config)]


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["trian"], 2, "did you mean train?"),
        (["data", "nothing"], 2, "did you mean data check or data stats or"),
        (["train", "epoch=3"], 2, "did you mean epochs?"),
        (["train", "--epochs"], 2, "expected a value after --epochs"),
        (["train", "epochs=many"], 2, "epochs: expected a whole number, got 'many'"),
        (["train", "precision=8"], 2, "expected one of auto, 32, 16, bf16, got '8'; see pellucid train --help"),
        (["train", "batch=auto"], 2, "batch: expected a whole number"),
        (["train", "epochs"], 2, "expected key=value"),
        (["predict", "save_txt"], 2, "write save_txt=true"),
        (["train", "half=true"], 2, "does not offer"),
        (["train", "data=x"], 2, "model: expected a value, got none"),
        (["train", "model=detect-n", "data=/no/such"], 3, "/no/such"),
        (["train", "model=detect-n", "data=x", "device=7"], 2, "device: expected the number of a GPU, got 7"),
        (["train", "model=detect-n", "data=x", "device=0,1"], 2, "device: expected the number of a GPU, got 0"),
        (["train", "imgsz=100"], 2, "imgsz: expected a multiple of 32 up to 16384, got 100; take 96"),
        (["train", "resume=/no/run"], 3, "/no/run/weights/last.ckpt"),
        (["train", "config=/no/file.yaml"], 3, "/no/file.yaml"),
        (["info", "model=detect-q"], 2, "detect-q"),
        (["val", "model=/no/w.safetensors", "data=x"], 3, "/no/w.safetensors"),
        (["data", "check", "data=x", "task=detekt"], 2, "task: expected one of detect"),
    ],
)
def test_a_mistake_is_one_sentence_and_an_exit_code(words, code, part, capsys):
    found, out, err = said(capsys, *words)
    assert found == code
    assert err.startswith("error: ")
    assert part in err
    assert (out, err.count("\n")) == ("", 1)


def test_nothing_to_do_shows_the_verbs(capsys):
    assert said(capsys)[0] == 2
    code, out, _ = said(capsys, "--help")
    assert code == 0
    assert all(name in out for name in VERBS)


@pytest.mark.parametrize(("nc", "params", "fused", "gflops"), [(80, 2_572_280, 2_408_932, 5.36), (2, 2_504_580, 2_375_226, 5.19)])
def test_info_prints_the_counted_figures(nc, params, fused, gflops, capsys):
    code, out, _ = said(capsys, "info", "model=detect-n", f"nc={nc}", "imgsz=640", "--json")
    assert code == 0
    figures = {"model": "detect-n", "task": "detect", "scale": "n", "nc": nc, "imgsz": 640, "params": params, "params_fused": fused}
    assert json.loads(out) == {**figures, "gflops": gflops}
    assert f"{params:,}" in said(capsys, "info", "model=detect-n", f"nc={nc}")[1]


@pytest.mark.parametrize(("rate", "shown"), [(12.34, "12.3 training images/s, 9 s in all"), (math.nan, "9 s in all")])
def test_a_run_too_short_to_be_timed_says_nothing_of_its_pace(rate, shown, monkeypatch, capsys):
    paths = {"e2e": SimpleNamespace(metrics={"box/ap": 0.5}, per_class=[])}
    scores = SimpleNamespace(paths=paths, protocol="p", images=3, notes=())
    result = TrainResult(Path("run"), "e2e/box/ap", 0.5, 1, rate, 9.0, scores=scores)
    monkeypatch.setattr("pellucid.train.run.train", lambda config: result)
    code, out, _ = said(capsys, "train", "model=detect-n", "data=trees")
    assert code == 0
    assert shown in out.splitlines()
    assert "nan" not in out


@pytest.mark.parametrize(
    ("e2e", "nms", "told"),
    [
        (0.0, 0.0, f"the score is 0\n{ZERO}"),
        (0.0, 1e-4, f"the score is 0.0001\n{ZERO}"),
        (0.0, 0.01, ""),
        (0.2, 0.3, ""),
        (math.nan, math.nan, NO_TRUTH),
        (0.0, None, f"the score is 0\n{ZERO}"),
    ],
)
@pytest.mark.parametrize("verb", ["train", "val", "val --json"])
def test_a_score_of_all_but_0_says_what_to_look_at(verb, e2e, nms, told, monkeypatch, capsys):
    paths = {name: SimpleNamespace(metrics={"box/ap": ap}, per_class=[]) for name, ap in (("e2e", e2e), ("nms", nms)) if ap is not None}
    scores = SimpleNamespace(paths=paths, protocol="p", images=3, notes=(), to_dict=dict)
    monkeypatch.setattr("pellucid.train.run.train", lambda config: TrainResult(Path("run"), "e2e/box/ap", 0.5, 1, 9.0, 9.0, scores=scores))
    monkeypatch.setattr("pellucid.model.validate", lambda config: (scores, Path("run")))
    code, out, err = said(capsys, *verb.split(), "model=trees-detect-n", "data=trees")
    assert (code, err) == (0, f"{told}\n" if told else "")
    assert ZERO not in out
    assert "docs/" not in err, "an installed package has no such folder"
    if verb != "train":
        assert said(capsys, *verb.split(), "model=detect-n", "data=trees")[2] == "", "random weights are told by a warning of their own"


def test_a_search_that_finds_nothing_says_what_to_look_at(data, tmp_path, capsys):
    words = ["predict", f"source={data.parent / 'images' / 'val'}", f"project={tmp_path}", "device=cpu", "save=false"]
    code, _, err = said(capsys, *words, "model=trees-detect-n", "conf=1")
    assert (code, err.startswith(f"nothing found in 2 pictures at conf=1: lower conf\n{ZERO}\n")) == (0, True)
    err = said(capsys, *words, "model=trees-detect-n", "conf=1", "classes=0")[2]
    assert err.startswith(f"nothing found in 2 pictures at conf=1: lower conf, name other classes than 0\n{ZERO}\n")
    for others in (["model=trees-detect-n", "conf=0"], ["model=detect-n", "conf=1"]):
        assert ZERO not in said(capsys, *words, *others)[2]


def test_env_is_json_on_request(capsys):
    assert json.loads(said(capsys, "env", "--json")[1])["packages"]["torch"]
    assert "torch" in said(capsys, "env")[1]


def test_train_val_predict_check_by_their_machine_readable_forms(data, tmp_path, capsys):
    common = ["workers=0", "device=cpu", f"project={tmp_path}", "--json", "plots=false"]
    code, out, err = said(capsys, "train", "model=detect-n", f"data={data}", "epochs=1", "batch=2", "imgsz=64", *common)
    assert code == 0
    assert "epoch 1/1" in err
    trained = json.loads(out)
    assert set(trained) >= {"run_dir", "best", "images_per_s", "wall_s"}
    assert set(trained["best"]) == {"metric", "value", "epoch"}
    weights = f"{trained['run_dir']}/weights/best.safetensors"

    code, out, _ = said(capsys, "val", f"model={weights}", f"data={data}", *common)
    scores = json.loads(out)
    assert code == 0
    assert scores["e2e"]["box/ap"] == trained["scores"]["e2e"]["box/ap"]
    assert set(scores) >= {"task", "protocol", "e2e", "nms", "gap", "run_dir"}
    assert "speed" in scores["nms"]

    source = data.parent / "images" / "val"
    words = [f"model={weights}", f"source={source}", "conf=0", f"project={tmp_path}", "device=cpu"]
    code, out, _ = said(capsys, "predict", *words, "--json", "save_txt=true", "save_json=true")
    results = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert len(results) == 2
    assert all(result["objects"] for result in results)
    folder = tmp_path / "detect" / "predict"
    kept = {"0.png", "1.png", "0.txt", "1.txt", "predictions.json", "images.json"}
    assert {path.name for path in folder.rglob("*") if path.is_file()} == kept
    assert {record["image_id"] for record in json.loads((folder / "predictions.json").read_text())} == {0, 1}
    assert "kind" in said(capsys, "predict", *words, "save=false")[1]

    code, out, _ = said(capsys, "data", "check", f"data={data}", "imgsz=64", "--json")
    assert code in (0, 1)
    assert json.loads(out)


def test_python_values_are_checked_and_made_fit():
    assert TrainConfig(device=0, precision=32).device == "0"
    assert PredictConfig(classes=[1, 2]).classes == (1, 2)
    for bad in ({"epochs": "3"}, {"epochs": True}, {"lr0": "x"}, {"cache": "maybe"}, {"plots": 1}, {"workers": 1.5}):
        with pytest.raises(UsageError, match=next(iter(bad))):
            TrainConfig(**bad)
    with pytest.raises(UsageError, match="did you mean max_det"):
        merged(ValConfig(), {"maxdet": 3})


@pytest.mark.parametrize("words", [["conf=0.1", "conf=0.9"], ["conf=0.1", "--conf", "0.9"], ["source=a.png", "source=b.png"]], ids=str)
def test_a_setting_that_is_given_twice_is_refused(words):
    with pytest.raises(UsageError, match=r"(conf|source): expected one value, got '.+' and '.+'; leave one of them out"):
        read_settings("predict", words)


def test_a_file_with_a_setting_twice_is_refused(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("conf: 0.1\nbatch: 4\nconf: 0.9\n")
    with pytest.raises(UsageError, match=r"a\.yaml:3: expected one line with conf, got another in line 1; remove one of them"):
        read_settings("predict", [f"config={file}"])


OUT_OF_RANGE = {"epochs": 0, "batch": 0, "fraction": 0.0, "mosaic": 2.0, "lr0": 0.0, "workers": -1, "ema_decay": 1.5, "patience": -1}


@pytest.mark.parametrize("bad", [{key: value} for key, value in OUT_OF_RANGE.items()], ids=list(OUT_OF_RANGE))
def test_values_out_of_range_are_refused(bad):
    with pytest.raises(UsageError, match=next(iter(bad))):
        TrainConfig(**bad)


def test_reading_the_command_line_needs_no_torch():
    code = "import sys; from pellucid.cli import read_settings; read_settings('train', ['epochs=3']); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_every_verb_has_its_own_settings():
    assert {verb.config for verb in VERBS.values()} >= {TrainConfig, ValConfig, PredictConfig, EnvConfig}
    assert callable(cli.main)


WORDS = st.lists(
    st.one_of(
        st.text(max_size=12),
        st.sampled_from(
            ["--", "=", "--=", "train", "config=", "--config", "--json", "epochs=3", "--epochs", "lr0=1e400", "classes=", "help=1"]
        ),
        st.builds("{}={}".format, st.sampled_from([field.name for field in fields(TrainConfig)]), st.text(max_size=8)),
        st.builds("--{} {}".format, st.sampled_from([field.name for field in fields(PredictConfig)]), st.text(max_size=8)),
    ),
    max_size=4,
)


@given(name=st.sampled_from(list(VERBS)), words=WORDS)
@settings(max_examples=30, deadline=None)
def test_any_words_are_settings_or_one_refusal(name, words):
    with suppress(PellucidError):
        config = merged(VERBS[name].config(), read_settings(name, words))
        assert isinstance(config, VERBS[name].config)


@given(name=st.sampled_from(["name", "project", "data", "source"]), text=st.text(max_size=20))
@settings(max_examples=30, deadline=None)
def test_text_arrives_as_it_was_written(name, text):
    verb = "predict" if name == "source" else "train"
    assert read_settings(verb, [f"{name}={text}"]) == {name: text}
    assert read_settings(verb, [f"--{name}", text]) == {name: text}


@pytest.mark.parametrize(("words", "code"), [(["--help"], 0), (["-h"], 0), ([], 2)])
def test_a_family_of_verbs_has_a_help(words, code, capsys):
    found, out, err = said(capsys, "data", *words)
    assert (found, err) == (code, "")
    assert len(out.splitlines()) == 6
    assert all(f"data {verb} " in out for verb in ("check", "stats", "preview", "convert", "split", "tiles"))


def test_help_tells_the_choices_of_every_setting_that_has_some(capsys):
    seen = []
    for verb, what in VERBS.items():
        out = said(capsys, *verb.split(), "--help")[1]
        for field in fields(what.config):
            if str(field.type).startswith("Literal"):
                choices = re.findall(r"['\"]([^'\"]+)['\"]", field.type)
                assert len(choices) > 1
                assert f"--{field.name} {{{','.join(choices)}}}" in out
                seen.append(field.name)
    assert {"mask_weight", "mask_cells", "rle_form", "precision", "to", "format"} <= set(seen)


@pytest.mark.parametrize("word", ["-V", "--version"])
def test_the_version(word, capsys):
    assert said(capsys, word)[:2] == (0, f"pellucid {pellucid.__version__}\n")


def test_info_counts_at_the_size_that_a_model_was_trained_at(capsys):
    told = json.loads(said(capsys, "info", "model=trees-detect-n", "--json")[1])
    assert told["imgsz"] == open_model("trees-detect-n")[1].imgsz == 416
    assert json.loads(said(capsys, "info", "model=detect-n", "--json")[1])["imgsz"] == 640
