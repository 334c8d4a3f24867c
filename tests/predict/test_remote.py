"""Pictures and videos by URL, from a server of this machine, within limits."""

import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from pellucid.errors import DataError, PellucidWarning
from pellucid.predict import open_sources, predict, remote
from tests.decode.fakes import RedFinder
from tests.predict.test_predict import CARD, assert_close, picture, save
from tests.predict.test_video import make_video


class Handler(BaseHTTPRequestHandler):
    pages = {}

    def do_GET(self):
        if self.path == "/slow.png":
            time.sleep(1.0)
        content = self.pages.get(self.path)
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"") + (100 if self.path == "/cut.png" else 0)))
        self.end_headers()
        with suppress(ConnectionError):  # who reads has seen enough
            self.wfile.write(content or b"")

    def log_message(self, *_):
        pass


@pytest.fixture
def url(tmp_path, monkeypatch):
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "*")
    png = BytesIO()
    Image.fromarray(picture()).save(png, "PNG")
    video = make_video(tmp_path / "served" / "clip.mp4", 4).read_bytes()
    same = dict.fromkeys(("/a/1.png", "/b/1.png", "/no-suffix", "/%EC%A7%80%EB%8B%A8.png", "/slow.png", "/cut.png", "/.."), png.getvalue())
    Handler.pages = {**same, "/clip.mp4": video, "/text.jpg": b"not a picture"}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_picture_by_url_is_the_picture(url, tmp_path):
    (result,) = predict(RedFinder(), CARD, f"{url}/a/1.png")
    assert_close(result)
    assert np.array_equal(result.image, picture())
    assert (str(result.name), result.path) == ("1.png", f"{url}/a/1.png")
    addresses = [f"{url}/{part}" for part in ("a/1.png", "b/1.png", "no-suffix", "%EC%A7%80%EB%8B%A8.png")]
    assert [str(source.name) for source in open_sources(addresses)] == ["1.png", "1-2.png", "no-suffix.jpg", "지단.png"]
    save(tmp_path / "x.png", picture())
    (tmp_path / "all.txt").write_text("\n".join([*addresses[:2], "x.png"]))
    results = list(predict(RedFinder(), CARD, tmp_path / "all.txt"))
    assert [str(result.name) for result in results] == ["1.png", "1-2.png", "x.png"]
    assert [len(result) for result in results] == [1, 1, 1]


def test_a_video_by_url(url):
    results = list(predict(RedFinder(), CARD, f"{url}/clip.mp4", vid_stride=2))
    assert [(result.frame.index, len(result)) for result in results] == [(0, 1), (2, 1)]


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("gone.png", "the server answered 404"),
        ("text.jpg", "found something else"),
        ("cut.png", r"bytes, got \d+; try again|IncompleteRead"),
        ("slow.png", "timed out"),
        ("a/1.png", "at most 0 MiB"),
    ],
)
def test_a_failure_is_one_sentence(page, words, url, monkeypatch):
    monkeypatch.setattr(remote, "PATIENCE", 0.3)
    if page == "a/1.png":
        monkeypatch.setattr(remote, "LARGEST", 100)
    with pytest.raises(DataError, match=words) as raised:
        list(predict(RedFinder(), CARD, f"{url}/{page}"))
    assert "\n" not in str(raised.value)
    with pytest.warns(PellucidWarning, match="1 of 2 pictures"):
        assert len(list(predict(RedFinder(), CARD, [f"{url}/{page}", picture()]))) == 1


def test_the_whole_must_come_in_time(url, monkeypatch):
    monkeypatch.setattr(remote, "WHOLE", -1)
    with pytest.raises(DataError, match="expected all of the picture within"):
        remote.fetch(f"{url}/a/1.png")


def test_nobody_answers():
    with pytest.raises(DataError, match=r"http://127\.0\.0\.1:9/a\.jpg: expected an answer"):
        list(predict(RedFinder(), CARD, "http://127.0.0.1:9/a.jpg"))
    with pytest.raises(DataError, match="expected a video that can be opened"):
        open_sources("http://127.0.0.1:9/a.mp4")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://x/a/b.png?size=3#top", "b.png"),
        ("http://x/..", "image0.jpg"),
        ("http://x/a%2F..%2F..%2Fetc%2Fpasswd", "passwd.jpg"),
        ("http://x/%00%0a.png", "__.png"),
        ("http://x/", "image0.jpg"),
        ("http://x/.hidden.png", "hidden.png"),
        ("http://x/" + "a" * 300 + ".png", "a" * 96 + ".png"),
    ],
)
def test_names_are_safe(url, name):
    assert str(remote.name_of(url)) == name
