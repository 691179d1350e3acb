"""One run: its steps, which are commands of nnU-Net and of ours, and how they are carried out.

Which steps are done is told from the files that they leave; what is written down besides is only what no file tells.
"""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import time
import zipfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from nnunet_nacl.evaluation import SUMMARY_NAME, Settings
from nnunet_nacl.experiments._plan import Job, raw_validation_files
from nnunet_nacl.files import whole_file
from nnunet_nacl.json_files import read_json
from nnunet_nacl.linking import trainers_path
from nnunet_nacl.nnunet import CHECKPOINTS, FINAL_CHECKPOINT, check_model, checkpoint_name, place
from nnunet_nacl.processes import Ended, ending, run_command
from nnunet_nacl.trainers import THREADS

Status = Literal["done", "running", "queued", "failed", "interrupted", "left"]
"""Of a run; ``left`` if it was never begun."""

_EPOCH = re.compile(r": Epoch (\d+)\s*$", re.MULTILINE)
_QUEUED = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SUSPENDED", "RESV_DEL_HOLD"}
_RUNNING = {"RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT", "STOPPED"}


@dataclass(frozen=True)
class Step:
    """One command of a run."""

    name: str
    command: list[str]


def steps_left(job: Job) -> list[Step]:
    """The steps from the first that is not done, as their commands would be now. Changes nothing."""
    steps = []
    if not evaluated_cases(job, job.validation) >= set(job.validation_cases):
        steps += _validation_steps(job)
    retrained = any(step.name == "train" for step in steps)
    if job.data.test_cases and (retrained or not evaluated_cases(job, job.predictions) >= set(job.data.test_cases)):
        if retrained or not _is_predicted(job, job.predictions, job.data.test_cases):
            images = job.data.raw / job.data.name / "imagesTs"
            steps.append(Step("predict", _predict(job, images, job.predictions, mirroring=not job.disable_tta)))
        # There may be ground truth without an image; that is no failure.
        steps.append(Step("evaluate_test", _evaluate(job, str(job.test_labels), str(job.predictions), "--chill")))
    return steps


def _validation_steps(job: Job) -> list[Step]:
    """nnU-Net validates the final checkpoint once it has trained; the best one predicts the cases like test cases."""
    predicted = _is_predicted(job, job.validation, job.validation_cases)
    if job.checkpoint == "final":
        train = [] if predicted else [Step("train", _train(job))]
        return [*train, Step("evaluate_validation", _evaluate(job, *_model(job), "-f", str(job.run.fold)))]
    steps = [] if _is_trained(job) else [Step("train", _train(job))]
    if steps or not predicted:
        # nnU-Net's own validation mirrors, whatever is asked for the test cases.
        predict = _predict(job, job.validation_data / "imagesTr", job.validation, mirroring=True)
        steps.append(Step("predict_validation", predict))
    evaluate = _evaluate(job, str(job.validation_data / "labelsTr"), str(job.validation))
    return [*steps, Step("evaluate_validation", evaluate)]


def reads_validation_data(job: Job, step: Step) -> bool:
    """Whether the step needs :func:`link_validation_data`."""
    return job.checkpoint != "final" and step.name in {"predict_validation", "evaluate_validation"}


def link_validation_data(job: Job) -> None:
    """Fill the folder that the best checkpoint's validation reads with links to, or copies of, the raw files."""
    wanted = {job.validation_data / file.parent.name / file.name: file for file in raw_validation_files(job)}
    for old in job.validation_data.glob("*/*"):  # of an earlier split
        if old not in wanted:
            old.unlink()
    for target, file in wanted.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        if not (target.exists() and target.samefile(file)):  # the raw data set may have been made anew
            target.unlink(missing_ok=True)
            place(file, target)


def clear_the_way(job: Job, step: Step) -> None:
    """Put aside what an interrupted attempt has left half written: nnU-Net would fail on it, or build on it.

    Call only while holding the run's lock, before the step.
    """
    if step.name == "train":
        for name in CHECKPOINTS:
            file = job.fold_folder / name
            if file.is_file() and not zipfile.is_zipfile(file):
                file.replace(file.with_suffix(".broken"))
    predicted = {
        "predict": (job.predictions, job.data.test_cases),
        "predict_validation": (job.validation, job.validation_cases),
    }
    if step.name in predicted:  # nnU-Net predicts the cases again that have no segmentation
        folder, cases = predicted[step.name]
        for case in cases:
            segmentation = folder / f"{case}{job.data.file_ending}"
            if segmentation.is_file() and not _is_current(job, folder / f"{case}.npz"):
                segmentation.unlink()
    if reads_validation_data(job, step):
        link_validation_data(job)


def delete_probabilities(job: Job) -> None:
    """Delete the probabilities of the cases that are evaluated."""
    for folder in (job.validation, job.predictions):
        for case in evaluated_cases(job, folder):
            for suffix in (".npz", ".pkl"):
                (folder / f"{case}{suffix}").unlink(missing_ok=True)


def missing_probabilities(job: Job) -> tuple[int, int]:
    """How many validation and test cases are still to be predicted."""

    def missing(folder: Path, cases: Collection[str]) -> int:
        evaluated = evaluated_cases(job, folder)
        return sum(case not in evaluated and not (folder / f"{case}.npz").is_file() for case in cases)

    return missing(job.validation, job.validation_cases), missing(job.predictions, job.data.test_cases)


def evaluated_cases(job: Job, folder: Path) -> set[str]:
    """The cases of the folder's summary, if there is one of this model with all that is asked for."""
    file = folder / SUMMARY_NAME
    if not file.is_file() or not _is_newer(job, file):
        return set()
    try:
        summary = read_json(file, _Summary, "summary of nnunet_nacl evaluate")
    except ValueError:  # what cannot be read is evaluated again
        return set()
    used, asked = summary.settings, Settings(surface=job.surface)
    same = all(getattr(used, name) == getattr(asked, name) for name in ("num_bins", "protocol", "margin_mm"))
    if not same or not set(asked.voxels) <= set(used.voxels) or (asked.surface and not used.surface):
        return set()
    return {case.case for case in summary.metric_per_case}


@dataclass(frozen=True)
class _EvaluatedCase:
    case: str


@dataclass(frozen=True)
class _Summary:
    """What we use of a ``calibration_summary.json``."""

    settings: Settings
    metric_per_case: list[_EvaluatedCase]


def _model(job: Job) -> list[str]:
    data = job.data
    return ["-d", data.name, "-c", data.configuration, "-tr", job.run.trainer, "-p", data.plans]


def _train(job: Job) -> list[str]:
    data, run = job.data, job.run
    command = ["nnUNetv2_train", data.name, data.configuration, str(run.fold), "-tr", run.trainer, "-p", data.plans]
    command += ["--npz"] if job.checkpoint == "final" else []
    command += ["-device", job.device]
    if _is_trained(job):
        return [*command, "--val"]
    can_continue = any(zipfile.is_zipfile(job.fold_folder / name) for name in CHECKPOINTS)
    return [*command, "--c"] if can_continue else command


def _predict(job: Job, images: Path, output: Path, *, mirroring: bool) -> list[str]:
    processes = str(job.num_processes)
    command = ["nnUNetv2_predict", "-i", str(images), "-o", str(output), *_model(job)]
    command += ["-f", str(job.run.fold), "--save_probabilities", "-device", job.device]
    command += [] if job.checkpoint == "final" else ["-chk", checkpoint_name(job.checkpoint)]
    command += [] if mirroring else ["--disable_tta"]
    return [*command, "-npp", processes, "-nps", processes, "--continue_prediction"]


def _evaluate(job: Job, *what: str) -> list[str]:
    command = ["nnunet_nacl", "evaluate", *what, "-np", str(max(1, job.num_processes))]
    return [*command, "--surface"] if job.surface else command


def _is_trained(job: Job) -> bool:
    """Whether nnU-Net has finished the training."""
    return zipfile.is_zipfile(job.fold_folder / FINAL_CHECKPOINT)


def _is_predicted(job: Job, folder: Path, cases: Collection[str]) -> bool:
    # nnU-Net writes the probabilities of a case before its segmentation, and the summary of a validation last.
    is_nnunets = folder == job.validation and job.checkpoint == "final"
    if is_nnunets and not (folder / "summary.json").is_file():
        return False
    return _is_trained(job) and all(
        (folder / f"{case}{job.data.file_ending}").is_file() and _is_current(job, folder / f"{case}.npz")
        for case in cases
    )


def _is_current(job: Job, npz: Path) -> bool:
    """Whether these probabilities are complete and not of an earlier model."""
    return npz.is_file() and _is_newer(job, npz) and zipfile.is_zipfile(npz)


def _is_newer(job: Job, file: Path) -> bool:
    final = job.fold_folder / FINAL_CHECKPOINT
    return not final.is_file() or file.stat().st_mtime >= final.stat().st_mtime


@dataclass
class State:
    """What is written down of a run.

    Attributes:
        seconds: that each step took, over all attempts.
        error: of the last attempt, if that failed.
        host: on which it was started last.
        started: when, in seconds since the epoch; None if it is not running, unless it was killed.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    error: str | None = None
    host: str | None = None
    started: float | None = None


def read_state(job: Job) -> State:
    """The state of a run; an empty one before its start, or if it cannot be read."""
    try:
        return read_json(_state_file(job), State, "state of a run", finite=True)
    except (OSError, ValueError):
        return State()


def carry_out(
    job: Job, *, gpu: str | None = None, threads: int | None = None, show: Callable[[str], None] = print
) -> str | None:
    """Do what is left of a run. A step that fails is tried once more.

    If another process has this run, waits for it, and then does what it has left.

    Args:
        job: the run.
        gpu: the one to use, for CUDA_VISIBLE_DEVICES; None for all.
        threads: how many each command may use on the CPU; None for nnU-Net's choice, which is all cores.
        show: called with lines that tell of progress.

    Returns:
        None, or why it failed, which is written into its state, too.

    Raises:
        Ended: this process is to end.
    """
    state = State()
    try:
        for folder in (_lock_file(job).parent, _state_file(job).parent, job.output / "logs"):
            folder.mkdir(parents=True, exist_ok=True)
        with _locked(job, waiting=lambda: show("waiting for another process that has this run")):
            state = read_state(job)
            state.error, state.host, state.started = None, socket.gethostname(), time.time()
            _write_state(job, state)
            check_model(job.data, job.run.trainer, job.run.fold, job.split)
            _check_checkpoint(job)
            _do_steps(job, state, _environment(job, gpu, threads), show)
            if job.keep == "summaries":
                delete_probabilities(job)
            state.started = None
            _write_state(job, state)
    except Ended:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the other runs go on
        state.error, state.started = str(error) or repr(error), None
        show(f"failed: {state.error}")
        with suppress(OSError):  # a full disk, perhaps the reason itself
            _write_state(job, state)
    return state.error


def _check_checkpoint(job: Job) -> None:
    """Raise a FileNotFoundError for a training that has ended without the checkpoint that is to predict."""
    file = job.fold_folder / checkpoint_name(job.checkpoint)
    if _is_trained(job) and not file.is_file():
        raise FileNotFoundError(
            f"{file} does not exist, although the training has ended: it was deleted, or the model was trained with "
            "--disable_checkpointing. Predict with --checkpoint final, or move the fold away to train anew."
        )


def _do_steps(job: Job, state: State, environment: dict[str, str], show: Callable[[str], None]) -> None:
    attempts: dict[str, int] = {}
    while left := steps_left(job):
        step = left[0]
        attempt = attempts[step.name] = attempts.get(step.name, 0) + 1
        log = job.output / "logs" / f"{job.key}_{step.name}.log"
        if attempt > 2:
            raise RuntimeError(f"{step.name} ended without an error, but has not done all cases. Its log is {log}.")
        if attempt > 1:
            if log.is_file():  # the second attempt must not overwrite the reason of the first failure
                log.replace(log.with_suffix(".first.log"))
            show(f"{step.name}: once more")
        clear_the_way(job, step)
        (step,) = [again for again in steps_left(job) if again.name == step.name]
        show(f"{step.name}; log: {log}")
        show(f"$ {shlex.join(step.command)}")
        start = time.monotonic()
        try:
            run_command(step.command, environment=environment, log=log, show=show)
        except RuntimeError as error:
            if attempt > 1:
                raise
            show(f"{step.name}: failed: {str(error).splitlines()[-1]}")
        finally:
            seconds = time.monotonic() - start
            state.seconds[step.name] = state.seconds.get(step.name, 0) + seconds
            _write_state(job, state)
        show(f"{step.name}: {duration(seconds)}")


def _environment(job: Job, gpu: str | None, threads: int | None) -> dict[str, str]:
    data, environment = job.data, dict(os.environ)
    for part, folder in (("raw", data.raw), ("preprocessed", data.preprocessed), ("results", data.results)):
        environment[f"nnUNet_{part}"] = str(folder)
    known = [folder for folder in environment.get("nnUNet_extTrainer", "").split(os.pathsep) if folder]
    if str(trainers_path()) not in known:
        environment["nnUNet_extTrainer"] = os.pathsep.join([*known, str(trainers_path())])
    environment["PYTHONUNBUFFERED"] = "1"
    if job.device == "cpu":  # worker processes for augmentation would compete with the training for the cores
        environment.setdefault("nnUNet_n_proc_DA", "0")
    if threads is not None:
        for variable in (THREADS, "OMP_NUM_THREADS"):
            environment.setdefault(variable, str(threads))
    if gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = gpu
    return environment


def status_of(job: Job) -> Status:
    """What has become of a run.

    Raises:
        RuntimeError: it was submitted to Slurm, which does not answer.
    """
    if is_running(job):
        return "running"
    if not steps_left(job):
        return "done"
    on_slurm = _slurm_status(job)
    if on_slurm is not None:
        return on_slurm
    if read_state(job).error is not None:
        return "failed"
    return "interrupted" if job.fold_folder.is_dir() else "left"


def is_running(job: Job) -> bool:
    """Whether a process holds the run's lock."""
    file = _lock_file(job)
    if not file.is_file():
        return False
    try:
        with FileLock(file, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # the file system has no locks, or the file is another user's
        return False


@contextmanager
def _locked(job: Job, *, waiting: Callable[[], object]) -> Iterator[None]:
    """Hold the run's lock, which the system releases however this process ends; call ``waiting`` once if it is held.

    Raises:
        Ended: this process is to end.
    """
    lock = FileLock(_lock_file(job))
    has_waited = False
    while not ending.is_set():
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if not has_waited:
                waiting()
            has_waited = True
            ending.wait(0.5)
            continue
        except OSError:  # a file system without locks keeps nobody out
            pass
        try:
            yield
        finally:
            lock.release()
        return
    raise Ended


def note_slurm_job(job: Job, number: str) -> None:
    """Write down that the run was submitted."""
    file = _slurm_file(job)
    file.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(file) as partial:
        partial.write_text(number)


def slurm_job(job: Job) -> str | None:
    """Slurm's number for the run, if it was submitted."""
    try:
        number = _slurm_file(job).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    if not re.fullmatch(r"\w+", number):
        raise ValueError(f"{_slurm_file(job)}: expected the number of a job of Slurm; got {number!r:.80}")
    return number


def _slurm_status(job: Job) -> Literal["queued", "running"] | None:
    """None if Slurm does not have the run's job, or no longer."""
    number, squeue = slurm_job(job), shutil.which("squeue")
    if number is None or squeue is None:
        return None
    command = [squeue, "--noheader", "--jobs", number, "--format", "%T"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if answer.returncode != 0 and "Invalid job id" not in answer.stderr:
        raise RuntimeError(f"Slurm does not say what has become of job {number}: {answer.stderr.strip()}")
    state = answer.stdout.strip()
    if state in _QUEUED:
        return "queued"
    return "running" if state in _RUNNING else None


def epochs_begun(job: Job) -> int | None:
    """The epoch that the training is in, told from nnU-Net's own log; None if no training is going on."""
    logs = sorted(job.fold_folder.glob("training_log_*.txt"), key=lambda file: file.stat().st_mtime)
    epochs = _EPOCH.findall(logs[-1].read_text(errors="replace")) if logs else []
    return int(epochs[-1]) if epochs and not _is_trained(job) else None


def duration(seconds: float) -> str:
    """As a person would say it.

    >>> duration(42.3), duration(605), duration(7322)
    ('42 s', '10 min 5 s', '2 h 2 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _write_state(job: Job, state: State) -> None:
    with whole_file(_state_file(job)) as partial:
        partial.write_text(json.dumps(asdict(state), indent=1), encoding="utf-8")


def _state_file(job: Job) -> Path:
    return job.output / "states" / f"{job.key}.json"


def _slurm_file(job: Job) -> Path:
    return _state_file(job).with_suffix(".slurm")


def _lock_file(job: Job) -> Path:
    return job.fold_folder.parent / f".{job.fold_folder.name}.lock"
