"""The commands ``link`` and ``export``."""

import shlex

from nnunet_nacl.commands._shared import wrong_usage


def link(*, remove: bool = False, list: bool = False) -> int:  # noqa: A002 - the option's name
    """Make nnU-Net's commands find our trainers, in this Python environment.

    Then nnUNetv2_train DATASET CONFIGURATION FOLD -tr nnUNetTrainerCE --npz trains with one of them.

    Args:
        remove: undo it
        list: only list the trainers, and the settings that their names can carry

    Examples:
        nnunet_nacl link --list
    """
    if remove and list:
        raise wrong_usage("--remove and --list do not go together.")
    from nnunet_nacl import linking

    if list:
        _list_trainers()
    else:
        print(linking.unlink() if remove else linking.link())
    return 0


def _list_trainers() -> None:
    from nnunet_nacl.linking import trainers_path
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
    print(
        "\nTrain with one of them, once 'nnunet_nacl link' has run: nnUNetv2_train 4 2d 0 -tr nnUNetTrainerNACL\n"
        f"Or without link: export nnUNet_extTrainer={shlex.quote(str(trainers_path()))}"
    )


def export(model_folder: str, *, o: str | None = None, overwrite: bool = False) -> int:
    """Copy a trained model so that a stock nnU-Net runs it.

    Args:
        model_folder: RESULTS/DATASET/TRAINER__PLANS__CONFIG
        o: FOLDER of the copy (default: MODEL_FOLDER_stock)
        overwrite: replace an earlier copy, once the new one is whole

    Examples:
        nnunet_nacl export RESULTS/DATASET/nnUNetTrainerCE__nnUNetPlans__2d -o for_others
    """
    from nnunet_nacl.export import NOTE_NAME, export_model, network_of_model

    output = export_model(model_folder, o, overwrite=overwrite)
    network = network_of_model(output)
    if network is None:
        print(f"Wrote {output}. A stock nnU-Net runs it: see {NOTE_NAME} there.")
    else:
        print(
            f"Wrote {output}. Its network is {network}: nnU-Net runs it only where nnunet_nacl is installed "
            f"(with monai and timm). See {NOTE_NAME} there."
        )
    return 0
