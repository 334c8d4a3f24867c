"""`pellucid <verb> [key=value | --key value]...`: results on stdout, progress and complaints on stderr.

Exit codes: 0 done, 1 findings or failure, 2 usage, 3 unreadable data.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from .config import CheckConfig, EnvConfig, InfoConfig, PredictConfig, TilesConfig, TrainConfig, ValConfig, check_key, merged
from .errors import MissingFileError, PellucidError, PellucidWarning, UsageError
from .rules import words_of_type

HELP = ("-h", "--help", "help")
YES, NO = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


@dataclass(frozen=True)
class Verb:
    """A verb of the command line: its settings, what it runs, and how it is called."""

    config: type
    run: Callable[[dict[str, Any]], int]
    example: str

    @property
    def about(self) -> str:
        return (self.config.__doc__ or "").splitlines()[0]


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
    if words[1:] and words[1] in HELP and (within := [verb for verb in VERBS if verb.startswith(f"{words[0]} ")]):
        print("\n".join(f"  {verb:<11} {VERBS[verb].about}" for verb in within))
        return 0
    name, rest = find_verb(words)
    verb = VERBS[name]
    if any(word in HELP for word in rest):
        print(parser_of(name).format_help())
        return 0
    return verb.run(read_settings(name, rest))


def find_verb(words: list[str]) -> tuple[str, list[str]]:
    """The verb, of one word or two, and what follows it; UsageError with the nearest verb."""
    for count in (2, 1):
        name = " ".join(words[:count])
        if name in VERBS:
            return name, words[count:]
    name = " ".join(word for word in words[:2] if "=" not in word and not word.startswith("-")) or words[0]
    within = [verb for verb in VERBS if verb.startswith(f"{words[0]} ")]
    near = (
        get_close_matches(name, VERBS, 1, 0.7)
        or within
        or get_close_matches(name, VERBS, 1, 0.4)
        or get_close_matches(words[0], VERBS, 1, 0.4)
    )
    hint = f"did you mean {' or '.join(near)}?" if near else f"verbs: {', '.join(VERBS)}"
    raise UsageError(f"unknown verb {name!r}: {hint}")


def read_settings(name: str, words: list[str]) -> dict[str, Any]:
    """The settings that were given, in a file and then in words, checked for name and kind."""
    kind = VERBS[name].config
    given = pairs_of(kind, words)
    if "config" in given:
        given = {**pairs_of_file(kind, given.pop("config")), **given}
    parser = parser_of(name)
    values = {}
    for key, text in given.items():
        values[key] = read_value(parser, kind, key, text)
    return values


def pairs_of(kind: type, words: list[str]) -> dict[str, str]:
    """{key: text} of `key=value`, `--key value`, `--key=value` and, for yes-or-no settings, `--key`."""
    switches = {field.name for field in fields(kind) if field.type == "bool"}
    pairs: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        key, equals, text = word.removeprefix("--").partition("=")
        key = key.replace("-", "_")
        if not equals and not word.startswith("--"):
            hint = f"{word}=true" if key in switches else f"for instance {fields(kind)[0].name}={word}"
            raise UsageError(f"expected key=value or --key value, got {word!r}; write {hint}")
        if key != "config":
            check_key(kind, key)
        if not equals:
            bare = key in switches and (not rest or rest[0].lower() not in YES + NO)
            if not bare and not rest:
                raise UsageError(f"{key}: expected a value after --{key}, got nothing; write {key}=...")
            text = "true" if bare else rest.pop(0)
        pairs[key] = text
    return pairs


def pairs_of_file(kind: type, path: str) -> dict[str, str]:
    """{key: text} of a YAML file with settings."""
    import yaml

    if not Path(path).is_file():
        raise MissingFileError(f"config: expected a YAML file, found none at {path}; check the path")
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"{path}: expected YAML with settings, got something else ({' '.join(str(error).split())}); mend the file"
        ) from None
    if not isinstance(content, dict):
        raise UsageError(f"{path}: expected lines like 'epochs: 50', got {type(content).__name__}; mend the file")
    for key in content:
        try:
            check_key(kind, str(key))
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
    return {str(key): value if isinstance(value, str) else json.dumps(value, default=str) for key, value in content.items()}


def read_value(parser: Any, kind: type, key: str, text: str) -> Any:
    """`text` as a value of the field's kind; UsageError in our words."""
    field = next(field for field in fields(kind) if field.name == key)
    if field.type == "bool":
        text = "true" if text.lower() in YES else "false" if text.lower() in NO else text
    if "None" in str(field.type) and text.lower() in ("none", "null"):
        text = "null"
    if str(field.type).startswith("tuple") and text != "null" and not text.startswith("["):
        text = f"[{text}]"
    try:
        return getattr(parser.parse_args([f"--{key}={text}"]), key)
    except Exception:
        raise UsageError(f"{key}: expected {words_of_type(str(field.type))}, got {text!r}; see pellucid ... --help") from None


class HelpLines(argparse.HelpFormatter):
    """The line under each field, and its default where there is one."""

    def _get_help_string(self, action: argparse.Action) -> str:
        shown = action.default is not None and action.default not in ("", argparse.SUPPRESS)
        return (action.help or "") + (" (default: %(default)s)" if shown else "")


def parser_of(name: str) -> Any:
    """A jsonargparse parser of a verb's settings; its help shows the line under each field."""
    import jsonargparse

    jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)
    verb = VERBS[name]
    parser = jsonargparse.ArgumentParser(
        prog=f"pellucid {name}",
        usage=f"pellucid {name} [key=value | --key value]...",
        description=verb.about,
        epilog=f"example: {verb.example}",
        exit_on_error=False,
        formatter_class=HelpLines,
    )
    parser.add_class_arguments(verb.config, as_group=False)
    parser.add_argument("--config", type=str, help="A YAML file with any of these settings; words on the command line win.")
    return parser


def overview() -> str:
    """What `pellucid --help` prints."""
    from .tasks import TASKS

    verbs = [f"  {name:<11} {verb.about}" for name, verb in VERBS.items()]
    shipped = sorted(path.stem for path in (Path(__file__).parent / "zoo").glob("*.safetensors"))
    names = [
        f"model=  a weights file (.safetensors, .ckpt), one that ships ({', '.join(shipped)}), or random weights:",
        f"        {', '.join(f'{task}-n' for task in TASKS)}, or -s, -m, -l, -x in place of -n",
        "data=   a YOLO data.yaml, a folder in COCO, VOC, DOTA or LabelMe form, or a sample that ships, as trees",
    ]
    usage = "usage: pellucid <verb> [key=value | --key value]..."
    return "\n".join([usage, "", *verbs, "", *names, "", "pellucid <verb> --help shows its settings and an example."])


def do_train(given: dict[str, Any]) -> int:
    from .train.run import resume_config, train

    config = resume_config(given) if given.get("resume") else merged(TrainConfig(), given)
    result = train(config)
    if config.json:
        print(json.dumps(result.to_dict()))
        return int(result.interrupted)
    if result.interrupted:
        print(f"stopped and saved; go on with: pellucid train resume={result.run_dir}")
        return 1
    assert result.scores is not None
    print(score_table(result.scores))
    print(f"best epoch {result.epoch} by {result.metric} = {result.value:.4f}")
    print(f"{result.images_per_s:.1f} training images/s, {result.wall_s:.0f} s in all")
    print(f"run folder: {result.run_dir}")
    return 0


def do_val(given: dict[str, Any]) -> int:
    from .model import validate

    config = merged(ValConfig(), given)
    scores, folder = validate(config)
    if config.json:
        print(json.dumps({"model": config.model, "run_dir": str(folder), **scores.to_dict()}))
    else:
        print(score_table(scores))
        print(f"run folder: {folder}")
    return 0


def do_predict(given: dict[str, Any]) -> int:
    from .model import predict_files

    config = merged(PredictConfig(), given)
    count = 0
    folder, results = predict_files(config)
    for result in results:
        count += 1
        print(result.to_json() if config.json else result_line(result), flush=True)
    print(f"{count} picture{'s' * (count != 1)}; folder: {folder}", file=sys.stderr)
    return 0


def do_check(given: dict[str, Any]) -> int:
    from .config import required
    from .data.doctor import check
    from .tasks import TASKS

    config = merged(CheckConfig(), given)
    required(config, "data")
    if config.task not in TASKS:
        raise UsageError(f"task: expected one of {', '.join(TASKS)}, got {config.task!r}; choose one of them")
    report = check(config.data, needs=TASKS[config.task]().needs, imgsz=config.imgsz)
    print(report.to_json() if config.json else "\n".join(report.lines()))
    return report.exit_code


def do_tiles(given: dict[str, Any]) -> int:
    from dataclasses import asdict

    from .config import required
    from .data.tile_files import write_tiles

    config = merged(TilesConfig(), given)
    required(config, "data", "out")
    report = write_tiles(config.data, config.out, config.tile, config.overlap, config.visible, config.strict)
    if config.json:
        print(json.dumps(asdict(report)))
        return 0
    for split, images in report.images.items():
        held = f"{report.objects[split]} objects, {report.ignored[split]} of them ignored, {report.left_out[split]} more left out"
        print(f"{split}: {images} pictures in {report.tiles[split]} tiles with {held}")
    print(f"data set ({report.format}): {report.out}")
    return 0


def do_info(given: dict[str, Any]) -> int:
    from .model import info

    config = merged(InfoConfig(), given)
    return show(info(config), config.json)


def do_env(given: dict[str, Any]) -> int:
    from .train.folder import environment

    return show(environment(), merged(EnvConfig(), given).json)


def show(figures: dict[str, Any], as_json: bool) -> int:
    """Print figures as JSON or as aligned lines."""
    if as_json:
        print(json.dumps(figures))
        return 0
    for key, value in figures.items():
        if isinstance(value, dict):
            value = ", ".join(f"{name} {part}" for name, part in value.items())
        print(f"{key:<13} {f'{value:,}' if isinstance(value, int) and not isinstance(value, bool) else value}")
    return 0


def score_table(scores: Any) -> str:
    """Both paths side by side, the protocol, and the classes."""
    paths = list(scores.paths)
    names = list(next(iter(scores.paths.values())).metrics)
    rows = {name: [scores.paths[path].metrics[name] for path in paths] for name in names}
    heads = [*paths, "gap"] if len(paths) == 2 else [*paths]
    lines = [scores.protocol, f"{scores.images} images", " " * 12 + "".join(f"{head:>9}" for head in heads)]
    for name, values in rows.items():
        shown = [*values, values[0] - values[1]] if len(paths) == 2 else values
        lines.append(f"{name:<12}" + "".join(f"{value:>9.4f}" for value in shown))
    table = scores.paths[paths[0]].per_class
    if len(table) > 1:
        lines += [f"class {row['name']:<20} {row['n']:>6} objects  ap {row['ap']:.4f}  ap50 {row['ap50']:.4f}" for row in table]
    return "\n".join([*lines, *scores.notes])


def result_line(result: Any) -> str:
    """path: 3 tree, 1 car"""
    from collections import Counter

    counts = Counter(result.names[int(label)] for label in result.boxes.cls)
    return f"{result.path}: {', '.join(f'{count} {name}' for name, count in counts.most_common()) or 'nothing'}"


VERBS: dict[str, Verb] = {
    "train": Verb(TrainConfig, do_train, "pellucid train model=detect-n data=shop.yaml epochs=100 imgsz=640 batch=16"),
    "val": Verb(ValConfig, do_val, "pellucid val model=runs/detect/train/weights/best.safetensors data=shop.yaml"),
    "predict": Verb(PredictConfig, do_predict, "pellucid predict model=runs/detect/train/weights/best.safetensors source=photos/"),
    "data check": Verb(CheckConfig, do_check, "pellucid data check data=shop.yaml imgsz=640"),
    "data tiles": Verb(TilesConfig, do_tiles, "pellucid data tiles data=dota/ out=tiles/ tile=1024 overlap=200"),
    "info": Verb(InfoConfig, do_info, "pellucid info model=detect-n nc=80 imgsz=640 --json"),
    "env": Verb(EnvConfig, do_env, "pellucid env --json"),
}

if __name__ == "__main__":
    sys.exit(main())
