"""The commands ``convert`` and ``split``."""

import argparse

from nnunet_nacl.commands._shared import Commands, add_overwrite, say_next


def add(commands: Commands) -> None:
    """Add it to the command line."""
    convert = commands.add_parser("convert", help="a published data set -> nnU-Net's raw format")
    convert.add_argument(
        "name",
        metavar="NAME",
        choices=("brats19", "brats19_regions", "flare21", "kits19", "mrbrains18", "mrbrains18_structures"),
        help="brats19 (exclusive classes), brats19_regions (nnU-Net's regions), flare21, kits19, mrbrains18 (three "
        "tissues) or mrbrains18_structures (eight)",
    )
    convert.add_argument("source", metavar="SOURCE", help="folder of the data set as downloaded and unpacked")
    convert.add_argument("-d", required=True, type=int, metavar="ID", help="number of the new data set, 1 to 999")
    convert.add_argument("-o", metavar="FOLDER", help="where DatasetXXX_NAME is made (default: nnUNet_raw)")
    add_overwrite(convert, "replace an earlier conversion, once the new one is whole")
    convert.set_defaults(run=_convert)
    convert.add_section("example", ["nnunet_nacl convert flare21 FLARE21 -d 21"])

    split = commands.add_parser("split", help="a labelled test set, and fixed training and validation cases")
    split.add_argument("-d", required=True, metavar="DATASET", help="name or number of a data set in nnUNet_raw")
    split.add_argument(
        "--test", metavar="N", help="make a data set with N labelled test cases, or a share such as 20%%; needs -o"
    )
    split.add_argument(
        "-o", "--output_id", type=int, metavar="ID", help="number of that new data set; the other is left alone"
    )
    folds = split.add_mutually_exclusive_group()
    folds.add_argument(
        "--val", metavar="N", help="splits_final.json of one fold with N validation cases, or a share such as 20%%"
    )
    folds.add_argument("--folds", type=int, metavar="K", help="splits_final.json of a cross-validation with K folds")
    split.add_argument(
        "--by-patient",
        nargs="?",
        const=True,
        default=False,
        metavar="REGEX",
        help="N counts patients, none in two sets; the patient is the case's name up to the last underscore, or "
        "REGEX's first group",
    )
    split.add_argument("--seed", type=int, default=0, metavar="S", help="for another draw (default: %(default)s)")
    add_overwrite(split, "replace an earlier split, once the new one is whole")
    split.set_defaults(run=_split, usage_error=split.error)
    split.add_section(
        "examples",
        [
            "nnunet_nacl split -d 21 -o 121 --test 80 --val 40    # a new data set, with a test set and one fold",
            "nnunet_nacl split -d 18 --folds 7                    # a cross-validation, for the data set as it is",
        ],
    )


def _convert(options: argparse.Namespace) -> int:
    from nnunet_nacl.datasets import convert

    folder = convert(options.name, options.source, dataset_id=options.d, output=options.o, overwrite=options.overwrite)
    print(f"Wrote {folder}")
    say_next(
        _plan(options.d), f"nnunet_nacl split -d {options.d} ... before that, for a labelled test set or fixed folds"
    )
    return 0


def _plan(number: object) -> str:
    return f"nnUNetv2_plan_and_preprocess -d {number} --verify_dataset_integrity"


def _split(options: argparse.Namespace) -> int:
    from nnunet_nacl.datasets import split_folds, split_test, splits_file

    if options.test is None and options.val is None and options.folds is None:
        options.usage_error("expected --test, --val or --folds.")
    if (options.test is None) != (options.output_id is None):
        options.usage_error("--test and -o go together: the split is a new data set.")
    folds = {"val": options.val, "folds": options.folds}
    common = {"by_patient": options.by_patient, "seed": options.seed, "overwrite": options.overwrite}
    if options.test is None:
        print(f"Wrote {split_folds(options.d, **folds, **common)}")
        say_next(f"{_plan(options.d)}, unless that is done")
        return 0
    folder = split_test(options.d, test=options.test, output_id=options.output_id, **folds, **common)
    print(f"Wrote {folder}")
    if options.val is not None or options.folds is not None:
        print(f"Wrote {splits_file(folder)}")
    say_next(_plan(options.output_id))
    return 0
