"""`pellucid <verb> [key=value | --key value]...`: results on stdout, progress and complaints on stderr.

Exit codes: 0 done, 1 findings or failure, 2 usage, 3 unreadable data.
"""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from ..errors import PellucidError, PellucidWarning
from .words import VERBS, find_verb, parser_of, read_settings

__all__ = ["VERBS", "find_verb", "main", "parser_of", "read_settings", "sentence_of"]

HELP = ("-h", "--help", "help")
VERSION = ("-V", "--version")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file name need not fit the terminal's encoding
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", PellucidWarning)
        warnings.showwarning = lambda message, *_, **__: print(f"warning: {message}", file=sys.stderr)
        try:
            return run(words)
        except PellucidError as error:
            print(f"error: {error}", file=sys.stderr)
            return error.exit_code
        except BrokenPipeError:  # the reader of our output left
            sys.stderr.close()
            return 1
        except (OSError, MemoryError, RuntimeError) as error:
            print(f"error: {sentence_of(error)}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
            return 1


def sentence_of(error: Exception) -> str:
    """What the machine would not give, in our words; any other error is raised again, since it is a defect of ours."""
    text = str(error)
    if isinstance(error, OSError):
        place = f"{error.filename!s:.200}: " if error.filename is not None else ""
        return f"{place}expected a file or folder that can be used, got {error.strerror or text}; check the path, its rights and the disk"
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in text:
        return f"expected enough memory, got too little ({text.splitlines()[0][:200] if text else 'none left'}); lower batch= or imgsz="
    raise error


def run(words: list[str]) -> int:
    """Find the verb, read its settings, do it."""
    if not words or words[0] in HELP:
        print(overview())
        return 0 if words else 2
    if words[0] in VERSION:
        from .. import __version__

        print(f"pellucid {__version__}")
        return 0
    within = [verb for verb in VERBS if verb.startswith(f"{words[0]} ")]
    if within and (len(words) == 1 or words[1] in HELP):
        print("\n".join(f"  {verb:<13} {VERBS[verb].about}" for verb in within))
        return 0 if words[1:] else 2
    name, rest = find_verb(words)
    verb = VERBS[name]
    if any(word in HELP for word in rest):
        print(parser_of(name).format_help())
        return 0
    return verb.run(read_settings(name, rest))


def overview() -> str:
    """What `pellucid --help` prints."""
    from ..tasks import TASKS

    verbs = [f"  {name:<13} {verb.about}" for name, verb in VERBS.items()]
    shipped = sorted(path.stem for path in (Path(__file__).parents[1] / "zoo").glob("*.safetensors"))
    names = [
        "model=  a weights file (.safetensors, .ckpt), an exported file (.onnx, _openvino),",
        f"        one that ships ({', '.join(shipped)}), or random weights:",
        f"        {', '.join(f'{task}-n' for task in TASKS)}, or -s, -m, -l, -x in place of -n",
        "data=   a YOLO data.yaml, a folder in COCO, VOC, DOTA or LabelMe form, or a sample that ships, as trees",
    ]
    usage = "usage: pellucid <verb> [key=value | --key value]..."
    return "\n".join([usage, "", *verbs, "", *names, "", "pellucid <verb> --help shows its settings and an example."])
