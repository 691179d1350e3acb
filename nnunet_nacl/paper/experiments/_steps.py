"""The steps of a run: commands of nnU-Net and ours. The files that they leave show which steps are done."""

import zipfile
from pathlib import Path

from nnunet_nacl.evaluation import SUMMARY_NAME, read_result
from nnunet_nacl.files import read_json
from nnunet_nacl.metrics import Settings
from nnunet_nacl.nnunet import CHECKPOINTS, options_of_folds
from nnunet_nacl.paper.experiments._plan import Job, PredictedCases
from nnunet_nacl.typing import ByName


def steps_left(job: Job) -> dict[str, list[str]]:
    """The remaining commands, from the first step that is not done, by the names of the steps."""
    options = job.options
    test = job.test
    steps = {}
    if not _is_evaluated(job, job.validation):
        if not _is_predicted(job, job.validation):
            steps["validate" if _is_trained(job) else "train"] = _train(job)
        steps["evaluate_validation"] = _evaluate(job, *_model(job))
    if test.cases and ("train" in steps or not _is_evaluated(job, test)):
        if not _is_predicted(job, test):
            steps["predict"] = [
                "nnUNetv2_predict", "-i", str(job.data.raw / "imagesTs"), "-o", str(test.folder), *_model(job),
                "-chk", CHECKPOINTS[options.checkpoint], "--save_probabilities", "-device", options.device,
                "-npp", str(options.num_processes), "-nps", str(options.num_processes),
            ]  # fmt: skip
            if "train" not in steps and not _left_over(job):
                steps["predict"].append("--continue_prediction")
        # There may be ground truth without an image, and the reverse; neither is a failure.
        steps["evaluate_test"] = _evaluate(
            job, str(job.data.raw / "labelsTs"), str(test.folder), "--chill"
        )
    return steps


def _model(job: Job) -> list[str]:
    data = job.data
    return options_of_folds(
        data.name,
        data.configuration,
        trainer=job.trainer,
        plans=data.plans,
        folds=[str(job.fold)],
    )


def _train(job: Job) -> list[str]:
    data = job.data
    command = [
        "nnUNetv2_train", data.name, data.configuration, str(job.fold), "-tr", job.trainer, "-p", data.plans,
        "--npz", "-device", job.options.device,
    ]  # fmt: skip
    if _is_trained(job):
        return [*command, "--val"]
    begun = any(zipfile.is_zipfile(job.fold_folder / name) for name in CHECKPOINTS.values())
    return [*command, "--c"] if begun else command


def _evaluate(job: Job, *what: str) -> list[str]:
    surface = [] if job.options.surface else ["--no_surface"]
    num_processes = max(1, job.options.num_processes)
    return ["nnunet_nacl", "evaluate", *what, "-np", str(num_processes), *surface]


def clear_the_way(job: Job, step: str) -> bool:
    """Move away files that an interrupted attempt left half written: nnU-Net would fail on them or build on them.

    Call only while holding the run's lock, before the step.

    Returns:
        Whether there were any, after which the step may take another command.
    """
    half_written = []
    if step == "train":
        for name in CHECKPOINTS.values():
            file = job.fold_folder / name
            if file.is_file() and not zipfile.is_zipfile(file):
                half_written.append(file)
                file.replace(file.with_suffix(".broken"))
    if step == "predict":
        half_written += _left_over(job)
        for file in half_written:  # nnU-Net predicts those again that have no segmentation
            file.unlink()
    return bool(half_written)


def _left_over(job: Job) -> list[Path]:
    """Segmentations that this model has not written, at least not to their end, with their probabilities."""
    test = job.test
    half_written = (case for case in test.cases if not _is_written(job, test, case))
    return [file for case in half_written if (file := _segmentation(job, test, case)).is_file()]


def _is_trained(job: Job) -> bool:
    return zipfile.is_zipfile(job.fold_folder / CHECKPOINTS["final"])


def _is_predicted(job: Job, predicted: PredictedCases) -> bool:
    if not _is_trained(job):
        return False
    last_file = predicted.last_file
    if last_file is not None and not _is_whole_json(predicted.folder / last_file):
        return False
    return all(_is_written(job, predicted, case) for case in predicted.cases)


def _is_whole_json(file: Path) -> bool:
    try:
        read_json(file, ByName)
    except (OSError, ValueError):  # missing, or cut short
        return False
    return True


def _segmentation(job: Job, predicted: PredictedCases, case: str) -> Path:
    return predicted.folder / f"{case}{job.data.file_ending}"


def _is_written(job: Job, predicted: PredictedCases, case: str) -> bool:
    """Whether a case's probabilities are current, and its segmentation, which nnU-Net writes last, is whole."""
    file = _segmentation(job, predicted, case)
    npz = predicted.folder / f"{case}.npz"
    if not (file.is_file() and zipfile.is_zipfile(npz) and _is_newer(job, npz)):
        return False
    try:
        job.data.reader.read_labels(file)
    except ValueError:
        return False
    return True


def _is_evaluated(job: Job, predicted: PredictedCases) -> bool:
    """Whether the folder's summary belongs to this model and these files, and has everything that is asked for."""
    file = predicted.folder / SUMMARY_NAME
    try:
        result = read_result(file)
    except (OSError, ValueError):
        return False
    # It may have more than is asked for
    asked = Settings(surface=job.options.surface or result.settings.surface)
    of_cases = (predicted.folder / f"{case}.npz" for case in predicted.cases)
    files = [file, *filter(Path.is_file, of_cases)]  # users may have removed some since
    return (
        result.settings == asked
        and {*predicted.cases} <= {*result.cases}
        and not result.stale_cases()
        and all(_is_newer(job, one) for one in files)
    )


def _is_newer(job: Job, file: Path) -> bool:
    """Whether a file is not of an earlier model."""
    final = job.fold_folder / CHECKPOINTS["final"]
    return not final.is_file() or file.stat().st_mtime >= final.stat().st_mtime
