"""The page: the same findings as predict, in a browser and by its programming interface; on this machine alone."""

import io
import json
import os
import re
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image

from pellucid import Model
from pellucid.cli import main
from pellucid.config import UiConfig
from pellucid.data import samples
from pellucid.errors import MissingFileError, PellucidError, UsageError
from pellucid.ui import app
from pellucid.ui.look import KEPT, Looker, models_at_hand
from tests.chromium import browser, needs_browser

PICTURE = Path(samples.__file__).parent / "nuclei" / "val" / "nuclei-256-256.png"
MODEL, OTHER = "nuclei-segment-n", "nuclei-obb-n"
SERVE = f"""
from pellucid.cli import main
main(["ui", "model={MODEL}", "other={OTHER}", "source={PICTURE}", "port=0", "device=cpu"])
"""


@pytest.fixture(scope="module")
def page():
    """The address of a page that runs as the user runs it, in a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen([sys.executable, "-c", SERVE], stdout=subprocess.PIPE, text=True, env=environment) as process:
        address = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", address)
        yield address
        process.terminate()


@needs_browser
def test_in_a_browser_both_models_are_seen(page, tmp_path):
    with browser(tmp_path / "profile") as tab:
        tab.open(page, 1400, 1100)
        tab.wait_for("(document.body.innerText.match(/objects? in 256 x 256 pixels by e2e/g) || []).length === 2")
        words = tab.ask("document.body.innerText")
        assert "nucleus" in words
        assert "(no second model)" not in words
        tab.wait_for("[...document.images].filter(image => image.naturalWidth === 256).length >= 3")
        asked = tab.ask("performance.getEntriesByType('resource').map(entry => entry.name)")
        assert [name for name in asked if not name.startswith((page, "data:", "blob:"))] == [], "nothing comes from elsewhere"
        with Image.open(tab.picture(tmp_path / "ui.png")) as image:
            assert np.asarray(image.convert("RGB"), int).std() > 10
        tab.open(page, 390)
        tab.wait_for("document.body.innerText.includes('compare with')")
        assert tab.ask("document.documentElement.scrollWidth - innerWidth") <= 0


def asked(address, body=None, kind="application/json"):
    with urllib.request.urlopen(urllib.request.Request(address, body, {"Content-Type": kind}), timeout=60) as answer:
        return answer.read()


def looked(page, *settings):
    """(event, content) that the programming interface gives for PICTURE."""
    head = b'--cut\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n'
    upload = asked(f"{page}/gradio_api/upload", head + PICTURE.read_bytes() + b"\r\n--cut--\r\n", "multipart/form-data; boundary=cut")
    picture = {"path": json.loads(upload)[0], "meta": {"_type": "gradio.FileData"}}
    event = json.loads(asked(f"{page}/gradio_api/call/look", json.dumps({"data": [picture, *settings]}).encode()))["event_id"]
    lines = asked(f"{page}/gradio_api/call/look/{event}").decode().strip().splitlines()
    return lines[-2].removeprefix("event: "), json.loads(lines[-1].removeprefix("data: "))


def test_by_its_programming_interface(page):
    kind, (overlay, table, line) = looked(page, MODEL, 0.3, "nms")
    (expected,) = Model(MODEL).predict(str(PICTURE), conf=0.3, path="nms", device="cpu")
    assert kind == "complete"
    assert len(expected) > 5
    assert line.startswith(f"{len(expected)} objects in 256 x 256 pixels by nms: reading")
    assert [row[1] for row in table["data"]] == pytest.approx(expected.boxes.conf.tolist(), abs=2e-3)
    with Image.open(io.BytesIO(asked(overlay["url"]))) as image:
        drawn = np.asarray(image.convert("RGB"), int)
    plain = np.asarray(Image.open(PICTURE).convert("RGB"), int)
    apart, drawn_on = (np.abs(other - expected.plot()).mean() for other in (drawn, plain))
    assert apart < drawn_on / 2, "JPEG blurs thin lines, yet this is the picture with its objects"
    kind, said = looked(page, "nothing-n", 0.3, "e2e")
    assert (kind, "nothing-n" in json.dumps(said)) == ("error", True)


def test_nobody_else_is_served_or_told(page):
    config = json.loads(asked(f"{page}/config"))
    assert config["analytics_enabled"] is False
    (served,) = [child for child in psutil.Process().children(True) if f"model={MODEL}" in " ".join(child.cmdline())]
    places = served.net_connections("tcp")
    assert [place.laddr.ip for place in places if place.status == psutil.CONN_LISTEN] == ["127.0.0.1"]
    assert {place.raddr.ip for place in places if place.raddr} <= {"127.0.0.1"}


def test_what_is_looked_at_is_what_predict_finds():
    seen = Looker("cpu").look(PICTURE, MODEL, 0.25)
    (expected,) = Model(MODEL).predict(str(PICTURE), device="cpu")
    assert len(seen.rows) == len(expected) > 5
    assert np.array_equal(seen.overlay, expected.plot())
    assert seen.rows[0] == ["nucleus", round(float(expected.boxes.conf[0]), 3), *(round(v, 1) for v in expected.boxes.xyxy[0].tolist())]
    assert re.fullmatch(r"\d+ objects in 256 x 256 pixels by e2e: reading [\d.]+ ms, network [\d.]+ ms, decoding [\d.]+ ms", seen.line)
    assert Looker("cpu").look(PICTURE, MODEL, 1.0).rows == []


def test_few_models_are_kept_and_new_weights_are_read_anew(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("pellucid.ui.look.open_model", lambda name: opened.append(name) or (name, None))
    looker = Looker("cpu")
    file = tmp_path / "best.safetensors"
    file.write_bytes(b"")
    for name in [str(file), "a", str(file), "b", "c", "a"]:
        looker._opened(name)
    assert opened == [str(file), "a", "b", "c", "a"]
    assert len(looker._open) == KEPT
    os.utime(file, (1, 1))
    looker._opened(str(file))
    assert opened[-1] == str(file)


def test_runs_are_offered_newest_first(tmp_path):
    for number, name in enumerate(("old", "new")):
        weights = tmp_path / "detect" / name / "weights"
        weights.mkdir(parents=True)
        (weights / "best.safetensors").touch()
        os.utime(weights / "best.safetensors", (number, number))
    known = models_at_hand(str(tmp_path))
    assert [Path(name).parts[-3] for name in known[:2]] == ["new", "old"]
    assert MODEL in known[2:]


def test_what_cannot_be_served_is_said(monkeypatch, capsys):
    with socket.socket() as taken:
        taken.bind((app.HOST, 0))
        taken.listen()
        with pytest.raises(UsageError, match="port: expected one that is free"):
            app.serve(UiConfig(port=taken.getsockname()[1]))
    with pytest.raises(MissingFileError, match="source: expected a picture"):
        app.serve(UiConfig(source="nowhere.png"))
    assert main(["ui", "port=70000"]) == 2
    monkeypatch.setitem(sys.modules, "gradio", None)
    with pytest.raises(PellucidError, match=r"pip install 'pellucid\[ui\]'"):
        app.load_gradio()
    capsys.readouterr()
