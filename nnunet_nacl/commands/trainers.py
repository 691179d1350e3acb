"""The commands ``trainers``, ``link``, ``unlink`` and ``export``."""

import argparse
import shlex

from nnunet_nacl.commands._shared import Commands, add_overwrite, say_next


def add(commands: Commands) -> None:
    """Add it to the command line."""
    trainers = commands.add_parser("trainers", help="list the trainers and the settings their names can carry")
    trainers.add_argument("--path", action="store_true", help="print the folder to put into nnUNet_extTrainer")
    trainers.set_defaults(run=_trainers)

    link = commands.add_parser("link", help="make nnU-Net's commands find the trainers, in this Python environment")
    link.set_defaults(run=_link)
    unlink = commands.add_parser("unlink", help="undo link")
    unlink.set_defaults(run=_unlink)

    export = commands.add_parser("export", help="copy a trained model so that a stock nnU-Net runs it")
    export.add_argument("model_folder", help="RESULTS/DATASET/TRAINER__PLANS__CONFIG")
    export.add_argument("-o", metavar="FOLDER", help="the copy (default: MODEL_FOLDER_stock)")
    add_overwrite(export, "replace an earlier copy, once the new one is whole")
    export.set_defaults(run=_export)
    export.add_section("example", ["nnunet_nacl export RESULTS/DATASET/nnUNetTrainerCE__nnUNetPlans__2d -o for_others"])


def _trainers(options: argparse.Namespace) -> int:
    from nnunet_nacl.linking import trainers_path

    if options.path:
        print(trainers_path())
        return 0
    from nnunet_nacl.trainers import LOSSES, SCHEDULE_SUFFIXES, trainer_names

    print("Trainers (nnUNetTrainerDice... add nnU-Net's own Dice; nnUNetTrainerDiceCE is nnU-Net's default loss):")
    for name in trainer_names():
        print(f"    {name}")
    print(
        "\nSettings are suffixes of the name, in any order, with p for the decimal point, as in\n"
        "nnUNetTrainerNACL_weight0p2_gaussian_sigma2_100epochs:\n"
    )
    for name, loss in LOSSES.items():
        print(f"{name}: {loss.summary}")
        for setting in loss.settings:
            print(f"    _{setting.shown():<44} default {setting.default:<8} paper: {setting.paper}")
    print("all of them")
    for suffix, meaning in SCHEDULE_SUFFIXES.items():
        print(f"    _{suffix:<44} {meaning}")
    print("\nTrain with one of them, once 'nnunet_nacl link' has run: nnUNetv2_train 4 2d 0 -tr nnUNetTrainerNACL")
    return 0


def _link(_: argparse.Namespace) -> int:
    from nnunet_nacl.linking import link

    print(link())
    say_next(
        "nnUNetv2_train DATASET CONFIGURATION FOLD -tr nnUNetTrainerCE --npz", "nnunet_nacl trainers, for all trainers"
    )
    return 0


def _unlink(_: argparse.Namespace) -> int:
    from nnunet_nacl.linking import unlink

    print(unlink())
    say_next("pip uninstall nnunet-nacl, to remove the package; or nnunet_nacl link, to have the trainers back")
    return 0


def _export(options: argparse.Namespace) -> int:
    from nnunet_nacl.export import NOTE_NAME, export_model, network_of_model

    output = export_model(options.model_folder, options.o, overwrite=options.overwrite)
    network = network_of_model(output)
    if network is None:
        print(f"Wrote {output}. A stock nnU-Net runs it: see {NOTE_NAME} there.")
    else:
        print(
            f"Wrote {output}. Its network is {network}: nnU-Net runs it only where nnunet_nacl is installed "
            f"(with monai and timm). See {NOTE_NAME} there."
        )
    say_next(f"nnUNetv2_predict_from_modelfolder -m {shlex.quote(str(output))} -i IMAGES -o PREDICTIONS -f FOLDS")
    return 0
