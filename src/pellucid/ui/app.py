"""The page itself, in gradio: on 127.0.0.1 alone, no link to share, no figures sent to anybody."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

from ..config import UiConfig
from ..errors import MissingFileError, PellucidError, UsageError
from .look import HEADS, Looker, models_at_hand

HOST = "127.0.0.1"
NONE = "(no second model)"
TITLE = "pellucid"
QUIET = {"GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}
CSS = ".line{font-size:13px;opacity:.75} footer{display:none !important}"


def load_gradio() -> Any:
    """gradio with its telemetry off; PellucidError where it is not installed."""
    os.environ.update(QUIET)
    try:
        import gradio
    except ImportError:
        raise PellucidError("ui: expected the package gradio, found none; run pip install 'pellucid[ui]'") from None
    return gradio


def build(config: UiConfig) -> Any:
    """The page as gradio Blocks."""
    gradio = load_gradio()
    looker = Looker(config.device)
    known = models_at_hand(config.runs)
    first = config.model or known[0]
    names = list(dict.fromkeys([first, *known]))

    def look(picture: str | None, model: str, conf: float, path: str) -> tuple[Any, list[list[Any]], str]:
        if not picture or model == NONE:
            return None, [], ""
        try:
            seen = looker.look(picture, model.strip(), conf, path)
        except PellucidError as error:
            raise gradio.Error(str(error), print_exception=False) from None
        return seen.overlay, seen.rows, seen.line

    with gradio.Blocks(title=TITLE, analytics_enabled=False) as page:
        gradio.Markdown(f"# {TITLE}\nDrop a picture. It stays on this machine.")
        with gradio.Row():
            with gradio.Column(scale=1, min_width=280):
                source = config.source or None
                picture = gradio.Image(
                    source, type="filepath", image_mode=None, label="picture", sources=["upload", "clipboard"], buttons=[]
                )
                conf = gradio.Slider(0.01, 1, config.conf, step=0.01, label="lowest score that is shown")
                path = gradio.Radio(["e2e", "nms"], value="e2e", label="path: end to end, or with suppression")
            with gradio.Column(scale=3, min_width=280), gradio.Row():
                sides = [_side(gradio, "model", names, first), _side(gradio, "compare with", [NONE, *names], config.other or NONE)]
        for number, (model, *shown) in enumerate(sides):
            events = [thing.change for thing in (picture, conf, path, model)]
            gradio.on([page.load, *events], look, [picture, model, conf, path], shown, api_name=("look", "compare")[number])
    return page


def serve(config: UiConfig) -> tuple[Any, str]:
    """Start the page; (the Blocks, its address). UsageError where the port is taken, MissingFileError for a picture that is not there."""
    if config.source and not Path(config.source).is_file():
        raise MissingFileError(f"source: expected a picture, found none at {config.source}; check the path")
    port = free_port(config.port)
    page = build(config)
    settings = {"server_name": HOST, "server_port": port, "share": False, "quiet": True, "show_error": True, "prevent_thread_lock": True}
    off = {"enable_monitoring": False, "mcp_server": False, "pwa": False, "ssr_mode": False, "footer_links": []}
    page.launch(**settings, **off, theme=plain_theme(), css=CSS, inbrowser=False)
    return page, f"http://{HOST}:{port}"


def wait(page: Any) -> None:
    """Until Ctrl-C."""
    try:
        while True:
            time.sleep(1)
    except KeyboardInterrupt:
        page.close(verbose=False)


def free_port(asked: int) -> int:
    """`asked` if nothing listens there; any free one for 0."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, asked))
        except OSError as error:
            raise UsageError(f"port: expected one that is free, got {asked} ({error.strerror}); take port=0 for any free one") from None
        return int(probe.getsockname()[1])


def plain_theme() -> Any:
    """Fonts of the reader's machine: gradio's own come from the network."""
    fonts = {"font": ["system-ui", "sans-serif"], "font_mono": ["ui-monospace", "monospace"]}
    return load_gradio().themes.Base(primary_hue="blue", **fonts)


def _side(gradio: Any, label: str, names: list[str], value: str) -> tuple[Any, ...]:
    """A model, its overlay, its table, its line."""
    with gradio.Column(min_width=280):
        model = gradio.Dropdown(list(dict.fromkeys([value, *names])), value=value, label=label, allow_custom_value=True)
        overlay = gradio.Image(label="found", interactive=False, format="jpeg", buttons=["download", "fullscreen"])
        line = gradio.Markdown(elem_classes="line")
        table = gradio.Dataframe(headers=list(HEADS), interactive=False, label="objects", max_height=320)
    return model, overlay, table, line
