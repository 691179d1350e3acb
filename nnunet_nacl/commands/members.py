"""The command ``members combine``."""

import argparse
import shlex

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
    members = commands.add_parser("members", help="predictions of several folds or seeds: their mean and agreement")
    actions = members.add_subparsers(dest="action", required=True, metavar="combine")
    combine = actions.add_parser(
        "combine",
        help="the mean of their probabilities",
        description="Write a folder of predictions with the mean of several members' probabilities, as "
        "nnUNetv2_ensemble does, and how much the members agree.",
    )
    combine.add_argument("members", nargs="+", metavar="PRED_FOLDER", help="of each member: the same cases")
    combine.add_argument("-o", required=True, metavar="FOLDER", help="the combined predictions")
    combine.add_argument(
        "--mutual_information",
        action="store_true",
        help="maps of what the members disagree on, too, into FOLDER/mutual_information",
    )
    add_reading(combine)
    add_ignore_geometry(combine)
    add_processes(combine)
    add_overwrite(combine, "replace earlier combined predictions, once the new ones are whole")
    combine.set_defaults(run=_combine)
    combine.add_section("example", ["nnunet_nacl members combine fold_0 fold_1 fold_2 -o ensemble"])


def _combine(options: argparse.Namespace) -> int:
    from nnunet_nacl.use import combine_members

    combined = combine_members(
        options.members,
        options.o,
        disagreement=options.mutual_information,
        dataset_json=options.djfile,
        plans=options.pfile,
        num_processes=num_processes(options),
        overwrite=options.overwrite,
        ignore_geometry=options.ignore_geometry,
    )
    print(combined.summary())
    if combined.skipped:
        return 1
    folder, members = shlex.quote(options.o), shlex.join(options.members)
    say_next(f"nnunet_nacl evaluate GT_FOLDER {folder}", f"nnunet_nacl review {folder} --members {members}")
    return 0
