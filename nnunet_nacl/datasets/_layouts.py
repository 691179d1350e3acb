"""How the data sets that we convert are laid out as published."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ENDING = ".nii.gz"
KITS19_LABELLED = 210  # case_00000 to case_00209 were published with segmentations, the rest are test cases


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
    channels: tuple[str, ...]
    labels: Mapping[str, int | tuple[int, ...]]
    folders: tuple[str, ...]
    expected: str
    find: Callable[[Path], list[SourceCase]]
    reference: str
    licence: str
    relabel: Mapping[int, int] = field(default_factory=dict)
    regions_class_order: tuple[int, ...] | None = None

    @property
    def values(self) -> frozenset[int]:
        """Values that masks may hold."""
        return frozenset(self.relabel or (value for value in self.labels.values() if isinstance(value, int)))


def _names(folder: Path, pattern: str) -> list[str]:
    """First groups of the names in a folder that match; hidden files, which macOS leaves behind, never do."""
    matches = (re.fullmatch(pattern, path.name) for path in folder.iterdir() if not path.name.startswith("."))
    return sorted(match[1] for match in matches if match)


def _find_brats19(source: Path) -> list[SourceCase]:
    cases = []
    for grade in ("HGG", "LGG"):
        for name in _names(source / grade, r"(BraTS.+)"):
            folder = source / grade / name
            # Released as .nii.gz; some copies are unpacked.
            ending = ".nii" if (folder / f"{name}_flair.nii").is_file() else ENDING
            *images, mask = (folder / f"{name}_{part}{ending}" for part in ("t1", "t1ce", "t2", "flair", "seg"))
            cases.append(SourceCase(name, tuple(images), mask))
    return cases


def _find_flare21(source: Path) -> list[SourceCase]:
    images, masks = source / "TrainingImg", source / "TrainingMask"
    names = {*_names(images, r"(.+)_0000\.nii\.gz"), *_names(masks, r"(.+)\.nii\.gz")}
    cases = [SourceCase(name, (images / f"{name}_0000{ENDING}",), masks / f"{name}{ENDING}") for name in sorted(names)]
    for folder in (source / "ValidationImg", source / "TestImg"):
        if folder.is_dir():
            tests = _names(folder, r"(.+)_0000\.nii\.gz")
            cases += [SourceCase(name, (folder / f"{name}_0000{ENDING}",), None, is_test=True) for name in tests]
    return cases


def _find_mrbrains18(source: Path) -> list[SourceCase]:
    cases = []
    for part in ("training", "test"):
        if not (source / part).is_dir():
            continue
        for number in _names(source / part, r"(\d+)"):
            folder = source / part / number
            mask = folder / f"segm{ENDING}"
            images = (folder / "pre" / f"FLAIR{ENDING}", *(_registered(folder / "pre", name) for name in ("T1", "IR")))
            is_test = part == "test"
            without = is_test and not mask.exists()
            cases.append(SourceCase(f"mrbrains18_{number}", images, None if without else mask, is_test=is_test))
    return cases


def _registered(folder: Path, sequence: str) -> Path:
    """The scan on the grid of FLAIR: reg_T1 beside a T1 of its own resolution; a lone T1 must be on that grid."""
    registered = folder / f"reg_{sequence}{ENDING}"
    plain = folder / f"{sequence}{ENDING}"
    return plain if plain.exists() and not registered.exists() else registered


def _find_kits19(source: Path) -> list[SourceCase]:
    cases = []
    for number in _names(source / "data", r"case_(\d+)"):
        folder = source / "data" / f"case_{number}"
        mask = folder / f"segmentation{ENDING}"
        is_test = int(number) >= KITS19_LABELLED
        without = is_test and not mask.exists()
        image = folder / f"imaging{ENDING}"
        cases.append(SourceCase(folder.name, (image,), None if without else mask, is_test=is_test))
    return cases


def _brats19(
    title: str, labels: Mapping[str, int | tuple[int, ...]], regions_class_order: tuple[int, ...] | None = None
) -> Layout:
    return Layout(
        title=title,
        channels=("T1", "T1ce", "T2", "FLAIR"),
        labels=labels,
        folders=("HGG", "LGG"),
        expected="HGG/CASE/CASE_{t1,t1ce,t2,flair,seg}.nii.gz and LGG/CASE/…",
        find=_find_brats19,
        reference="https://www.med.upenn.edu/cbica/brats2019/",
        licence="see reference",
        relabel={0: 0, 1: 2, 2: 1, 4: 3},  # as nnU-Net's converter does
        regions_class_order=regions_class_order,
    )


def _mrbrains18(title: str, labels: Mapping[str, int], relabel: Mapping[int, int]) -> Layout:
    return Layout(
        title=title,
        channels=("FLAIR", "T1", "IR"),
        labels=labels,
        folders=("training",),
        expected="training/1/pre/{FLAIR,reg_T1,reg_IR}.nii.gz and training/1/segm.nii.gz",
        find=_find_mrbrains18,
        reference="https://doi.org/10.34894/E0U32Q",
        licence="see reference",
        relabel=relabel,
    )


LAYOUTS: Mapping[str, Layout] = {
    "brats19": _brats19(
        "BraTS19", {"background": 0, "edema": 1, "necrotic and non-enhancing core": 2, "enhancing tumor": 3}
    ),
    "brats19_regions": _brats19(
        "BraTS19Regions",
        {"background": 0, "whole tumor": (1, 2, 3), "tumor core": (2, 3), "enhancing tumor": (3,)},
        (1, 2, 3),
    ),
    "flare21": Layout(
        title="FLARE21",
        channels=("CT",),
        labels={"background": 0, "liver": 1, "kidneys": 2, "spleen": 3, "pancreas": 4},
        folders=("TrainingImg", "TrainingMask"),
        expected="TrainingImg/train_000_0000.nii.gz and TrainingMask/train_000.nii.gz",
        find=_find_flare21,
        reference="https://flare.grand-challenge.org",
        licence="see reference",
    ),
    "kits19": Layout(
        title="KiTS19",
        channels=("CT",),
        labels={"background": 0, "kidney": 1, "tumor": 2},
        folders=("data",),
        expected="data/case_00000/imaging.nii.gz and data/case_00000/segmentation.nii.gz",
        find=_find_kits19,
        reference="https://kits19.grand-challenge.org/data/",
        licence="CC BY-NC-SA",
    ),
    # The challenge leaves out infarctions (9) and other lesions (10). Its predecessor scored three tissues and left out
    # cerebellum (7) and brain stem (8) as well. nnU-Net neither trains on voxels of the label "ignore" nor scores them.
    "mrbrains18": _mrbrains18(
        "MRBrainS18",
        {"background": 0, "gray matter": 1, "white matter": 2, "cerebrospinal fluid": 3, "ignore": 4},
        {0: 0, 1: 1, 2: 1, 3: 2, 4: 2, 5: 3, 6: 3, 7: 4, 8: 4, 9: 4, 10: 4},
    ),
    "mrbrains18_structures": _mrbrains18(
        "MRBrainS18Structures",
        {
            "background": 0,
            "cortical gray matter": 1,
            "basal ganglia": 2,
            "white matter": 3,
            "white matter lesions": 4,
            "extracerebral cerebrospinal fluid": 5,
            "ventricles": 6,
            "cerebellum": 7,
            "brain stem": 8,
            "ignore": 9,
        },
        {value: min(value, 9) for value in range(11)},
    ),
}
CONVERTERS = tuple(LAYOUTS)
