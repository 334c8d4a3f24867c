"""A real browser for tests: what a page says once it is laid out, and a picture of it."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-dev-shm-usage"]
QUIET = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions"]
needs_browser = pytest.mark.skipif(not any(map(shutil.which, NAMES)), reason="no Chromium on this machine: apt-get install chromium")


def browse(url, profile: Path, width=1200, height=900, *flags, timeout=60):
    """What Chromium prints when it opens `url` in a window of this size."""
    binary = next(path for path in map(shutil.which, NAMES) if path)
    size = f"--window-size={width},{height}"
    command = [binary, *FLAGS, *QUIET, f"--user-data-dir={profile}", size, *flags, url]
    done = subprocess.run(command, capture_output=True, timeout=timeout, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def laid_out(page: Path, profile: Path, width: int):
    """(words on the page, scroll width, window width, images that failed, resources asked for) in a frame `width` pixels wide."""
    probe = (
        "<script>onload=()=>{const r=document.documentElement;const bad=[...document.images].filter(i=>!i.naturalWidth).length;"
        "const asked=performance.getEntriesByType('resource').map(e=>e.name).filter(n=>!n.startsWith('data:')).length;"
        "const words=document.querySelector('main').innerText;parent.document.title=`PROBE ${r.scrollWidth} ${innerWidth} ${bad} ${asked}`;"
        "parent.document.body.append(Object.assign(parent.document.createElement('pre'),{textContent:words}))}</script>"
    )
    inside = page.with_name("probe-inside.html")
    inside.write_text(page.read_text(encoding="utf-8").replace("</body>", f"{probe}</body>"), encoding="utf-8")
    frame = page.with_name("probe.html")
    frame.write_text(
        f'<!doctype html><meta charset=utf-8><body><iframe src="{inside.name}" style="width:{width}px;height:900px;border:0"></iframe>'
    )
    said = browse(
        frame.as_uri(), profile, max(width, 500) + 40, 1000, "--allow-file-access-from-files", "--virtual-time-budget=5000", "--dump-dom"
    )
    figures = re.search(r"PROBE (\d+) (\d+) (\d+) (\d+)", said)
    assert figures, said[:2000]
    return said.partition("<pre>")[2], *map(int, figures.groups())
