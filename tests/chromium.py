"""A real browser for tests: Chromium without a window, told what to do through a pipe."""

import base64
import json
import os
import shutil
import subprocess
import time
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-dev-shm-usage"]
QUIET = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions"]
LONGEST = 60  # seconds that anything may take
needs_browser = pytest.mark.skipif(not any(map(shutil.which, NAMES)), reason="no Chromium on this machine: apt-get install chromium")


class Tab:
    """One page: `ask` runs a script in it, `wait_for` one until it gives something that counts as true."""

    def __init__(self, into, out):
        self.into, self.out, self.number, self.session = into, out, 0, None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.send("Page.enable")

    def send(self, method, **params):
        self.number += 1
        head = {"sessionId": self.session} if self.session else {}
        self.into.write(json.dumps({"id": self.number, "method": method, "params": params, **head}).encode() + b"\0")
        self.into.flush()
        while True:
            answer = json.loads(self._message())
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]

    def open(self, url, width=1200, height=900):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.send("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")

    def ask(self, script):
        return self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)["result"].get("value")

    def wait_for(self, script):
        end = time.monotonic() + LONGEST
        while not (value := self.ask(script)):
            assert time.monotonic() < end, f"never came true: {script}"
            time.sleep(0.05)
        return value

    def picture(self, path, whole=False):
        """A PNG of what is seen, or of the `whole` page."""
        content = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(content))
        return path

    def _message(self):
        letters = bytearray()
        while (letter := self.out.read(1)) != b"\0":
            assert letter, "the browser has gone"
            letters += letter
        return bytes(letters)


@contextmanager
def browser(profile):
    """A `Tab` of a browser of its own."""
    binary = next(path for path in map(shutil.which, NAMES) if path)
    (theirs, mine), (answers, told) = os.pipe(), os.pipe()
    command = [binary, *FLAGS, *QUIET, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
    redirected = ["bash", "-c", f'exec "$@" 3<&{theirs} 4>&{told}', "bash", *command]
    with subprocess.Popen(redirected, pass_fds=(theirs, told), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        os.close(theirs)
        os.close(told)
        with os.fdopen(mine, "wb") as into, os.fdopen(answers, "rb") as out:
            try:
                yield Tab(into, out)
            finally:
                process.terminate()
                process.wait(LONGEST)
