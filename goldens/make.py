"""Frozen figures: `python goldens/make.py` compares them all, `... NAME` prints one, `... NAME --reseal REASON` freezes it anew.

A golden holds nested numbers x, how far each may be off (`tolerance` x max(1, |x|)), what none of them, less that, may fall below
(`floor`), the reason for it, and the command that makes it. MANIFEST.sha256 lists the files: an edit that is not a reseal is refused by
a test.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from values import GOLDENS, Golden  # noqa: E402

MANIFEST = HERE / "MANIFEST.sha256"


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """(dotted name, number) of everything in nested dicts and lists."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            yield from leaves(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def differences(found: Any, golden: dict[str, Any]) -> list[str]:
    """What is not as the golden says, a sentence each."""
    ours, stated = dict(leaves(found)), dict(leaves(golden["values"]))
    said = [f"{name}: expected a value, got none" for name in stated if name not in ours]
    said += [f"{name}: expected no value, got {ours[name]}" for name in ours if name not in stated]
    for name in stated.keys() & ours.keys():
        if not abs(ours[name] - stated[name]) <= allowed(stated[name], golden["tolerance"]):
            said.append(f"{name}: expected {stated[name]!r} within {golden['tolerance']}, got {ours[name]!r}")
    return sorted(said) + below_floor(found, golden["tolerance"], golden["floor"])


def allowed(value: float, tolerance: float) -> float:
    """By how much a value may be off."""
    return tolerance * max(1.0, abs(value))


def below_floor(values: Any, tolerance: float, floor: float) -> list[str]:
    """The values that, less the tolerance, lie below the floor, which no reseal and no tolerance moves."""
    return [
        f"{name}: expected at least the floor {floor} and the tolerance, got {value!r}"
        for name, value in leaves(values)
        if not value - allowed(value, tolerance) >= floor
    ]


def content(name: str, reason: str | None = None) -> dict[str, Any]:
    """What the file of a golden holds now."""
    golden: Golden = GOLDENS[name]
    head = {"name": name, "command": f"make reseal NAME={name} REASON='...'", "tolerance": golden.tolerance, "floor": golden.floor}
    return {**head, "reason": golden.reason, "resealed": reason or "first frozen", "values": golden.make()}


def reseal(name: str, reason: str, folder: Path = HERE) -> Path:
    """Write a golden and its line of the manifest; SystemExit where a value lies below the floor or no reason is given."""
    if len(reason.split()) < 3:
        raise SystemExit(f"reseal: expected a reason in a few words, got {reason!r}; say what changed and why that is right: REASON='...'")
    new = content(name, reason)
    if low := below_floor(new["values"], new["tolerance"], new["floor"]):
        raise SystemExit(
            f"reseal: {name} crosses its floor: {'; '.join(low)}; the change that moved it is wrong, or the floor in values.py is"
        )
    path = folder / f"{name}.json"
    path.write_text(json.dumps(new, indent=1) + "\n", encoding="utf-8")
    write_manifest(folder)
    return path


def write_manifest(folder: Path) -> None:
    lines = [f"{digest(path)}  {path.relative_to(folder)}\n" for path in sorted(folder.glob("*.json"))]
    (folder / MANIFEST.name).write_text("".join(lines), encoding="utf-8")


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def broken_seals(folder: Path = HERE) -> list[str]:
    """Frozen files that are not what the manifest says, are missing, or are not listed."""
    lines = [line.split() for line in (folder / MANIFEST.name).read_text(encoding="utf-8").splitlines()]
    listed = {name: stated for stated, name in lines}
    files = {path.name: digest(path) for path in folder.glob("*.json")}
    return sorted(name for name in listed.keys() | files.keys() if listed.get(name) != files.get(name))


def load(name: str, folder: Path = HERE) -> dict[str, Any]:
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def compare() -> int:
    """Print one line a golden; 1 where anything differs or a seal is broken."""
    failed = [f"{name}: expected the file that was sealed, got another; make reseal NAME={Path(name).stem}" for name in broken_seals()]
    for name in GOLDENS:
        said = differences(GOLDENS[name].make(), load(name))
        print(f"{name:16} {'as frozen' if not said else 'DIFFERS'}")
        failed += [f"{name}: {text}" for text in said]
    print("\n".join(failed), file=sys.stderr, end="\n" if failed else "")
    return int(bool(failed))


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", nargs="?", choices=[*GOLDENS, []], default=[], metavar="NAME", help=", ".join(GOLDENS))
    parser.add_argument("--reseal", metavar="REASON", help="freeze it anew, and say why")
    given = parser.parse_args(words)
    if not given.name:
        return compare()
    if given.reseal is None:
        print(json.dumps(content(given.name)["values"], indent=1))
        return 0
    print(reseal(given.name, given.reseal))
    return 0


if __name__ == "__main__":
    sys.exit(main())
