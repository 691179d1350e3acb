"""The commands ``link`` and ``export``."""


def link(*, remove: bool = False, list: bool = False) -> int:  # noqa: A002 - the option's name
    """Make nnU-Net's commands find our trainers, in this Python environment.

    Then nnUNetv2_train DATASET CONFIGURATION FOLD -tr nnUNetTrainerCE --npz trains with one of them.

    Args:
        remove: undo it
        list: only list the trainers, and the settings that their names can carry

    Examples:
        nnunet_nacl link --list
    """
    from nnunet_nacl import linking

    if list:
        _list_trainers()
    else:
        print(linking.unlink() if remove else linking.link())
    return 0


def _list_trainers() -> None:
    from nnunet_nacl.trainers import LOSSES, SCHEDULE_SUFFIXES, trainer_names

    print("Trainers (nnUNetTrainerDice... add nnU-Net's own Dice; nnUNetTrainerDiceCE is nnU-Net's default loss):")
    print(*(f"    {name}" for name in trainer_names()), sep="\n")
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


def export(model_folder: str) -> int:
    """Copy a trained model to MODEL_FOLDER_stock, which a stock nnU-Net runs.

    Args:
        model_folder: RESULTS/DATASET/TRAINER__PLANS__CONFIG

    Examples:
        nnunet_nacl export RESULTS/DATASET/nnUNetTrainerCE__nnUNetPlans__2d
    """
    from nnunet_nacl.export import NOTE_NAME, export_model

    output = export_model(model_folder)
    print(f"Wrote {output}. {NOTE_NAME} in it says how to use it, and what it needs.")
    return 0
