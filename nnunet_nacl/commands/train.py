"""The commands to train with our losses: ``link`` (nnU-Net finds them), ``export`` (a stock one predicts), ``demo``."""

from nnunet_nacl.commands._arguments import find_device
from nnunet_nacl.commands._output import MAIN_PATH


def link(*, remove: bool = False, list: bool = False) -> int:  # noqa: A002 - the option's name
    """Make nnU-Net's commands find NACL and our other trainers, in this Python environment.

    Once is enough. Then nnU-Net's own commands train and predict with nnUNetTrainerNACL, the baselines
    nnUNetTrainerCE, FL, ECP, LS, SVLS and MbLS, and each of them with nnU-Net's Dice loss (nnUNetTrainerDiceNACL).

    Args:
        remove: undo it
        list: only list the trainers and the settings that their names can carry

    Examples:
        nnunet_nacl link
        nnUNetv2_train 4 2d 0 -tr nnUNetTrainerNACL_paperSchedule
        nnUNetv2_train 4 2d 0 -tr nnUNetTrainerNACL_weight0p01_paperSchedule --npz
    """
    from nnunet_nacl import linking
    from nnunet_nacl.trainers import LOSSES, SCHEDULE, TERMS, default_of

    if remove:
        print(f"Removed {linking.unlink()}")
        return 0
    if not list:
        print(linking.link())
        print("Next:\n    nnUNetv2_train DATASET 2d 0 -tr nnUNetTrainerNACL_paperSchedule")
        return 0

    print(
        f"Trainers are named nnUNetTrainer[TERM]LOSS. LOSS: {', '.join(LOSSES)}. TERM, which is added to the loss: "
        f"{', '.join(TERMS)}. nnUNetTrainerDiceCE has nnU-Net's default loss."
    )
    print("\nSettings are suffixes of the name, in any order, with p as the decimal point, as in")
    print("nnUNetTrainerNACL_weight0p2_gaussian_sigma2_100epochs:\n")
    for name, loss in {**LOSSES, **TERMS}.items():
        print(f"{name}: {loss.summary}")
        for setting in loss.settings:
            default = str(default_of(name, setting.name))
            print(f"    _{setting.shown():<44} default {default:<8} paper: {setting.about}")
    print("all of them")
    for setting in SCHEDULE:
        print(f"    _{setting.shown():<44} {setting.about}")
    return 0


def export(model_folder: str, *, as_final: str = "checkpoint_final.pth") -> int:
    """Copy a trained model to MODEL_FOLDER_stock, which a stock nnU-Net, TotalSegmentator and MONAI can read.

    Args:
        model_folder: RESULTS/DATASET/TRAINER__PLANS__CONFIG
        as_final: CHECKPOINT that the copy calls checkpoint_final.pth, such as checkpoint_calibrated.pth

    Examples:
        nnunet_nacl export RESULTS/DATASET/TRAINER__PLANS__CONFIG --as_final checkpoint_calibrated.pth
    """
    from nnunet_nacl.export import NOTE_NAME, export_model

    output = export_model(model_folder, as_final=as_final)
    print(f"Wrote {output}. {NOTE_NAME} in it explains how to use it and what it needs.")
    return 0


def demo() -> int:
    """Compare nnU-Net's default loss and NACL on a built-in data set, in minutes, in the folder nnunet_nacl_demo.

    Both are trained side by side, predict, are evaluated and calibrated, and share one report.
    """
    from nnunet_nacl.demo import run_demo

    run_demo("nnunet_nacl_demo", device=find_device("auto"))
    print("Next: do the same with your own data, here data set 4:", *MAIN_PATH, sep="\n    ")
    return 0
