"""Label files by the names of their pictures: the same name first, else one that differs in capitals alone."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable

from ..findings import Log


def stem_of(name: str) -> str:
    """A path without its suffix."""
    return os.path.splitext(name)[0]


class Stems:
    """How many names of pictures, less their suffixes, differ in capitals alone."""

    def __init__(self, names: Iterable[str]) -> None:
        self._count = Counter(stem.lower() for stem in {stem_of(name) for name in names})

    def alone(self, stem: str) -> bool:
        return self._count[stem.lower()] <= 1

    def __contains__(self, stem: str) -> bool:
        """Whether one picture, whatever its capitals, has the name."""
        return self._count[stem.lower()] == 1


class Texts:
    """Label files by their names without suffix."""

    def __init__(self, files: Iterable[tuple[str, str]], suffix: str = ".txt") -> None:
        """(name without suffix, file) of each; `suffix` is the usual one."""
        self._suffix = suffix
        self._files: dict[str, list[tuple[str, str]]] = {}
        for stem, file in files:
            self._files.setdefault(stem.lower(), []).append((stem, file))

    @classmethod
    def among(cls, names: Iterable[str], suffix: str = ".txt") -> Texts:
        """Those of the names that end in the suffix, whatever its capitals."""
        length = len(suffix)
        return cls(((name[:-length], name) for name in names if name[-length:].lower() == suffix), suffix)

    def files(self) -> list[str]:
        return sorted(file for files in self._files.values() for _, file in files)

    def of(self, stem: str, pictures: Stems) -> list[str]:
        """The files of a picture, the one that counts first; of another name than in capitals only where no other picture is alike."""
        found = self._files.get(stem.lower())
        if found is None:
            return []
        if len(found) == 1 and found[0][0] == stem:
            return [found[0][1]]
        alone = pictures.alone(stem)
        same = [(name != stem, not file.endswith(self._suffix), file) for name, file in found if name == stem or alone]
        return [file for *_, file in sorted(same)]


def say_capitals(log: Log, picture: str, stem: str, files: list[str]) -> None:
    """Findings where the label file that counts is named otherwise than its picture, or is not the only one."""
    used, *others = files
    if os.path.basename(stem_of(used)) != os.path.basename(stem):
        log.add("label-spelled", picture, used)
    if others:
        log.add("label-cases", picture, f"{used} is used, not {', '.join(others)}")
