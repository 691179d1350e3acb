"""How the data sets that we convert are laid out as published, read from ``layouts.yaml``."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ENDINGS = (".nii", ".nii.gz")  # released as .nii.gz; some copies are unpacked


@dataclass(frozen=True)
class SourceCase:
    """The files of a case; they may turn out to be missing. A test case may have no mask."""

    name: str
    images: tuple[Path, ...]
    mask: Path | None
    is_test: bool = False


@dataclass(frozen=True)
class Layout:
    """A published data set: where its files are, and what nnU-Net is told of them."""

    title: str
    channels: list[str]
    labels: Mapping[str, int | list[int]]
    needed: list[str]
    expected: str
    name: str
    reference: str
    cases: list[dict[str, Any]]
    license: str = "see reference"
    relabel: Mapping[int, int] = field(default_factory=dict)
    regions_class_order: list[int] | None = None

    @property
    def values(self) -> frozenset[int]:
        """Values that masks may hold."""
        return frozenset(self.relabel or (value for value in self.labels.values() if isinstance(value, int)))

    def find(self, source: Path) -> Iterator[SourceCase]:
        """The cases in a folder; hidden files, which macOS leaves behind, are none."""
        for part in self.cases:
            is_test = part.get("is_test", False)
            found = {match["id"] for pattern in part["find"] for match in _matches(source, pattern)}
            for number in sorted(found):
                images = tuple(_existing(source, paths, number) for paths in part["images"])
                mask = _existing(source, part["mask"], number) if "mask" in part else None
                if is_test and mask is not None and not mask.exists():
                    mask = None
                yield SourceCase(self.name.format(id=number), images, mask, is_test)


def _matches(source: Path, pattern: str) -> Iterator[re.Match[str]]:
    folder, _, name = pattern.partition("/")
    paths = (path.name for path in (source / folder).glob("*") if not path.name.startswith("."))
    return (match for path in paths if (match := re.fullmatch(name, path)))


def _existing(source: Path, paths: str | list[str], number: str) -> Path:
    """The first of the paths that exists, or the first."""
    options = [paths] if isinstance(paths, str) else paths
    files = [source / f"{path.format(id=number)}{ending}" for path in options for ending in ENDINGS]
    return next((file for file in files if file.exists()), files[1])


LAYOUTS = {
    name: Layout(**content)
    for name, content in yaml.safe_load(Path(__file__).with_name("layouts.yaml").read_text(encoding="utf-8")).items()
}
CONVERTERS = tuple(sorted(LAYOUTS))
