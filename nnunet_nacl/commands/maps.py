"""The command ``maps``."""

import argparse

from nnunet_nacl.commands._shared import (
    Commands,
    add_ignore_geometry,
    add_overwrite,
    add_processes,
    add_reading,
    num_processes,
    say_next,
)


def add(commands: Commands) -> None:
    """Add it to the command line."""
    maps = commands.add_parser(
        "maps",
        help="images of confidence, entropy or a structure's probability, for a viewer",
        description="Write images of what predictions are sure of, where each case's segmentation lies: same spacing, "
        "origin, direction and format. Viewers such as ITK-SNAP and 3D Slicer show them over it.",
    )
    maps.add_argument("pred_folder", metavar="PRED_FOLDER", help="segmentations and their .npz files")
    maps.add_argument("-o", required=True, metavar="FOLDER", help="for CASE_MAP.nii.gz and so on")
    maps.add_argument(
        "--what",
        nargs="+",
        default=["confidence"],
        metavar="MAP",
        help="confidence, entropy, structure:NAME (the probability of a structure), mutual_information "
        "(default: confidence)",
    )
    maps.add_argument(
        "--members",
        nargs="+",
        default=[],
        metavar="PRED_FOLDER",
        help="for mutual_information: predictions of the same cases by folds or seeds, which it shows the "
        "disagreement of",
    )
    maps.add_argument(
        "--dtype",
        choices=("float32", "uint16", "uint8"),
        help="default: float32 if the format can; else scaled so that the largest number stands for 1, or for the "
        "largest entropy",
    )
    add_reading(maps)
    add_ignore_geometry(maps)
    add_processes(maps)
    add_overwrite(maps, "replace an earlier folder of maps, once the new one is whole")
    maps.set_defaults(run=_maps)
    maps.add_section(
        "examples",
        [
            "nnunet_nacl maps predictions -o maps --what confidence entropy structure:tumour",
            "nnunet_nacl maps predictions -o maps --what mutual_information --members fold_0 fold_1",
        ],
    )


def _maps(options: argparse.Namespace) -> int:
    from nnunet_nacl.use import write_maps

    written = write_maps(
        options.pred_folder,
        options.o,
        what=options.what,
        members=options.members,
        dtype=options.dtype,
        dataset_json=options.djfile,
        plans=options.pfile,
        num_processes=num_processes(options),
        overwrite=options.overwrite,
        ignore_geometry=options.ignore_geometry,
    )
    print(written.summary())
    if written.skipped:
        return 1
    say_next(f"open a map in {options.o} over its case's image, in ITK-SNAP or 3D Slicer")
    return 0
