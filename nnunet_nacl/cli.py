"""The command ``nnunet_nacl``. Each subcommand imports what it needs when it runs, so that ``--help`` is instant."""

import argparse
import io
import os
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nnunet_nacl import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from nnunet_nacl.evaluation import FolderResult

_VOXELS = ("foreground", "union", "image", "boundary")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status: 0 fine, 1 something failed, 2 wrong usage, 130 interrupted."""
    options = _parser().parse_args(arguments)
    options.arguments = sys.argv[1:] if arguments is None else list(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a σ in a method's name must not end anything
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output (head, say) has seen enough; Python would complain again while it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, ValueError, RuntimeError) as error:
        print(f"nnunet_nacl {options.command}: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\nnnunet_nacl {options.command}: interrupted.", file=sys.stderr)
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nnunet_nacl", description="Calibrated nnU-Net: NACL and baseline trainers, and calibration metrics."
    )
    parser.add_argument("--version", action="version", version=f"nnunet_nacl {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="train, predict and evaluate on a built-in data set, in minutes")
    demo.add_argument("-o", default="nnunet_nacl_demo", metavar="FOLDER", help="working folder (default: %(default)s)")
    demo.add_argument("-device", choices=("auto", "cpu", "cuda"), default="auto", help="default: %(default)s")
    demo.set_defaults(run=_demo)

    _add_evaluate(commands)
    _add_report(commands)
    _add_experiment(commands)
    _add_data_sets(commands)
    _add_calibrate(commands)
    _add_logits(commands)
    merge = commands.add_parser("merge", help="put the results of parts or folders together")
    merge.add_argument("summaries", nargs="+", metavar="SUMMARY", help="what evaluate has written")
    merge.add_argument("-o", required=True, metavar="SUMMARY.json", help="the merged one; other files go beside it")
    merge.add_argument("--chill", action="store_true", help="references without a prediction are no failure")
    merge.set_defaults(run=_merge)

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
    export.set_defaults(run=_export)
    return parser


def _add_evaluate(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    evaluate = commands.add_parser(
        "evaluate",
        help="calibration and segmentation metrics of predictions made with --save_probabilities",
        description="Calibration and segmentation metrics: of a folder of predictions made with --save_probabilities "
        "(GT_FOLDER PRED_FOLDER), or of the validation cases of a model trained with --npz (-d -c -tr -p -f). "
        "Run again, it goes on where it was interrupted.",
    )
    _add_predictions(evaluate)
    evaluate.add_argument(
        "-o", metavar="SUMMARY.json", help="summary; the other files go beside it (default: in PRED_FOLDER)"
    )
    evaluate.add_argument(
        "-np", type=int, metavar="N", help="cases evaluated at a time (default: as nnU-Net, or cores)"
    )
    evaluate.add_argument("--chill", action="store_true", help="references without a prediction are no failure")
    evaluate.add_argument("--overwrite", action="store_true", help="evaluate every case anew")
    evaluate.add_argument(
        "--voxels",
        nargs="+",
        default=["foreground", "union"],
        choices=_VOXELS,
        help="voxel sets (default: foreground union)",
    )
    evaluate.add_argument("--bins", type=int, default=15, metavar="M", help="confidence bins (default: %(default)s)")
    evaluate.add_argument(
        "--boundary_mm", type=float, default=2.0, metavar="MM", help="width of the set boundary (default: %(default)s)"
    )
    evaluate.add_argument("--surface", action="store_true", help="HD95, ASSD and normalized surface distance, too")
    evaluate.add_argument(
        "--tolerance_mm", type=float, default=1.0, metavar="MM", help="of the surface distance (default: %(default)s)"
    )
    evaluate.add_argument(
        "--protocol",
        choices=("standard", "reference"),
        default="standard",
        help="reference: as the code that the paper's figures come from (default: %(default)s)",
    )
    evaluate.add_argument("--num_parts", type=int, default=1, metavar="N", help="divide the cases into N parts")
    evaluate.add_argument("--part_id", type=int, default=0, metavar="I", help="and evaluate part I, from 0")
    evaluate.set_defaults(run=_evaluate, usage_error=evaluate.error)


def _add_predictions(command: argparse.ArgumentParser) -> None:
    """Predictions with references: folders, or the validation cases of a model."""
    command.add_argument("gt_folder", nargs="?", metavar="GT_FOLDER", help="folder with the reference segmentations")
    command.add_argument("pred_folder", nargs="?", metavar="PRED_FOLDER", help="segmentations and their .npz files")
    command.add_argument("-djfile", metavar="FILE", help="dataset.json (default: the one in PRED_FOLDER)")
    command.add_argument("-pfile", metavar="FILE", help="plans.json (default: the one in PRED_FOLDER, if any)")
    command.add_argument("-d", metavar="DATASET", help="instead, a model: name or number of its data set")
    command.add_argument("-c", metavar="CONFIGURATION", help="the model's configuration, such as 2d")
    command.add_argument("-tr", metavar="TRAINER", help="default: nnUNetTrainer")
    command.add_argument("-p", metavar="PLANS", help="default: nnUNetPlans")
    command.add_argument("-f", nargs="+", metavar="FOLD", help="default: 0 1 2 3 4")


def _add_report(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    report = commands.add_parser(
        "report",
        help="one page that compares methods: verdict, tables, reliability diagrams, rankings, cases",
        description="Make one self-contained HTML page from what evaluate has written for methods, folds or data sets.",
    )
    _add_summaries(report)
    report.add_argument("-o", default="report.html", metavar="FILE.html", help="default: %(default)s")
    report.add_argument("--images", metavar="FOLDER", help="the images (default: imagesTs beside labelsTs, and so on)")
    report.set_defaults(run=_report)

    table = commands.add_parser("table", help="a table of the report as Markdown, LaTeX or CSV")
    _add_summaries(table)
    table.add_argument(
        "--table",
        default="methods",
        choices=("methods", "differences", "structures", "scores", "sum-rank", "mean-case-rank", "cases"),
        help="default: %(default)s",
    )
    table.add_argument(
        "--format", default="markdown", choices=("markdown", "latex", "csv"), help="default: %(default)s"
    )
    table.add_argument("--voxels", choices=_VOXELS, help="voxel set, where the table has one (default: the first)")
    table.add_argument("-o", metavar="FILE", help="write it there (default: print it)")
    table.set_defaults(run=_table)

    plot = commands.add_parser("plot", help="a figure of the report as SVG, PDF or PNG")
    plot.add_argument(
        "kind",
        metavar="KIND",
        choices=("reliability", "classes", "tradeoff", "radar", "ranks", "case"),
        help="reliability, classes (reliability of each class), tradeoff, radar, ranks or case",
    )
    _add_summaries(plot)
    plot.add_argument("-o", metavar="FILE", help="ends with .svg, .pdf or .png (default: KIND.svg)")
    plot.add_argument("--voxels", choices=_VOXELS, help="voxel set (default: the first)")
    plot.add_argument("--classes", nargs="+", metavar="NAME", help="of classes (default: the worst calibrated)")
    plot.add_argument("--case", metavar="NAME", help="of case (default: the one of median ECE)")
    plot.add_argument("--images", metavar="FOLDER", help="of case: the images (default: as report)")
    plot.set_defaults(run=_plot)


def _add_experiment(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    experiment = commands.add_parser(
        "experiment",
        help="train, predict, evaluate and report a comparison of methods on a data set of nnU-Net",
        description="Carry out a study: train each of its methods on each fold with nnU-Net's own commands, predict "
        "the test cases if there are any, evaluate, and write the report. Run again, it goes on where it stopped.",
    )
    experiment.add_argument(
        "study",
        metavar="STUDY",
        help="main, hyperparameters, prior, sigma, penalty, constraint, samples, all of them (all), or FILE.yaml",
    )
    experiment.add_argument("-d", metavar="DATASET", help="name or number")
    experiment.add_argument("-c", metavar="CONFIGURATION", help="such as 2d or 3d_fullres")
    experiment.add_argument("-p", metavar="PLANS", default="nnUNetPlans", help="default: %(default)s")
    experiment.add_argument("-f", nargs="+", type=int, metavar="FOLD", default=[0], help="numbers; default: 0")
    experiment.add_argument("--methods", nargs="+", metavar="METHOD", help="only these, by name or group")
    experiment.add_argument("--epochs", type=_positive, metavar="N", help="of each training (default: nnU-Net's 1000)")
    experiment.add_argument("--iterations", type=_positive, metavar="N", help="of an epoch (default: nnU-Net's 250)")
    experiment.add_argument("--paper_schedule", action="store_true", help="the paper's Adam, 100 epochs by default")
    experiment.add_argument(
        "-o",
        metavar="FOLDER",
        help="where the folder of predictions, logs, reports is made (default: nnunet_nacl_experiments)",
    )
    experiment.add_argument("-device", choices=("auto", "cpu", "cuda", "mps"), default="auto", help="default: auto")
    experiment.add_argument("-np", type=_positive, default=2, metavar="N", help="processes of predicting, evaluating")
    experiment.add_argument("--surface", action="store_true", help="HD95, ASSD and normalized surface distance, too")
    experiment.add_argument("--disable_tta", action="store_true", help="predict test cases without mirroring")
    experiment.add_argument(
        "--keep",
        choices=("probabilities", "summaries"),
        default="probabilities",
        help="summaries: delete each run's probabilities once they are evaluated (default: %(default)s)",
    )
    experiment.add_argument("--status", action="store_true", help="only show what is done, running and left")
    experiment.add_argument("--show", action="store_true", help="only print the study's table, to read or to copy")
    experiment.add_argument(
        "--executor",
        choices=("local", "commands", "slurm"),
        default="local",
        help="run here, print shell commands, or submit to Slurm (default: %(default)s)",
    )
    experiment.add_argument("--jobs", type=_positive, default=1, metavar="N", help="local: runs at a time, one a GPU")
    slurm = experiment.add_argument_group("of each run's job, with --executor slurm")
    slurm.add_argument("--partition", metavar="NAME", help="default: the cluster's")
    slurm.add_argument("--gpus", type=int, default=1, metavar="N", help="default: %(default)s")
    slurm.add_argument("--hours", type=float, default=24, metavar="H", help="default: %(default)s")
    slurm.add_argument("--memory_gb", type=float, default=32, metavar="GB", help="default: %(default)s")
    slurm.add_argument("--cpus", type=_positive, default=8, metavar="N", help="default: %(default)s")
    experiment.set_defaults(run=_experiment, usage_error=experiment.error)


def _add_data_sets(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    convert = commands.add_parser("convert", help="a published data set -> nnU-Net's raw format")
    convert.add_argument(
        "name",
        metavar="NAME",
        choices=("flare21", "kits19", "mrbrains18", "mrbrains18_structures"),
        help="flare21, kits19, mrbrains18 (three tissues) or mrbrains18_structures (eight)",
    )
    convert.add_argument("source", metavar="SOURCE", help="folder of the data set as downloaded and unpacked")
    convert.add_argument("-d", required=True, type=int, metavar="ID", help="number of the new data set, 1 to 999")
    convert.add_argument("-o", metavar="FOLDER", help="where DatasetXXX_NAME is made (default: nnUNet_raw)")
    convert.set_defaults(run=_convert)

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
    split.set_defaults(run=_split, usage_error=split.error)


def _add_calibrate(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    calibrate = commands.add_parser(
        "calibrate", help="calibration after training: temperature, vector and class-wise scaling, isotonic regression"
    )
    actions = calibrate.add_subparsers(dest="action", required=True, metavar="fit|apply")
    fit = actions.add_parser(
        "fit",
        help="fit a method to predictions with references",
        description="Fit a method to the validation cases of a model trained with --npz (-d -c -tr -p -f), or to a "
        "folder of predictions made with --save_probabilities (GT_FOLDER PRED_FOLDER).",
    )
    _add_predictions(fit)
    fit.add_argument(
        "--method",
        choices=("temperature", "classwise", "vector", "irm", "local"),
        default="temperature",
        help="default: %(default)s",
    )
    fit.add_argument(
        "--voxels", choices=("foreground", "union", "image"), default="image", help="to fit to (default: %(default)s)"
    )
    fit.add_argument(
        "--samples",
        type=_positive,
        metavar="N",
        help="voxels drawn at most (default: 2,000,000 / channels; local: 200,000)",
    )
    fit.add_argument("-i", metavar="IMAGES", help="for the method local: folder of the images, to look at them, too")
    fit.add_argument("--seed", type=int, default=0, metavar="S", help="of the draw (default: %(default)s)")
    fit.add_argument("-o", metavar="FILE.json", help="default: posthoc_METHOD.json beside the model or in PRED_FOLDER")
    fit.set_defaults(run=_calibrate_fit, usage_error=fit.error)
    apply = actions.add_parser("apply", help="write a calibrated copy of a folder of predictions")
    apply.add_argument("fit", metavar="FIT.json", help="what fit has written")
    apply.add_argument("pred_folder", metavar="PRED_FOLDER", help="segmentations and their .npz files")
    apply.add_argument("-o", required=True, metavar="FOLDER", help="the calibrated copy, which must not exist")
    apply.add_argument("-i", metavar="IMAGES", help="folder of the images, if the fit looks at them")
    apply.add_argument("-djfile", metavar="FILE", help="dataset.json (default: the one in PRED_FOLDER)")
    apply.add_argument("-pfile", metavar="FILE", help="plans.json (default: the one in PRED_FOLDER, if any)")
    apply.add_argument("--force", action="store_true", help="even to cases that it was fitted to, and mark the copy")
    apply.set_defaults(run=_calibrate_apply)


def _add_logits(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    logits = commands.add_parser("logits", help="figures of what losses do to the logits, of one model or several")
    logits.add_argument(
        "model_folders", nargs="+", metavar="MODEL_FOLDER", help="RESULTS/DATASET/TRAINER__PLANS__CONFIG"
    )
    logits.add_argument("-f", default="0", metavar="FOLD", help="of each model (default: %(default)s)")
    logits.add_argument("-i", metavar="IMAGES", help="labelled images (default: the fold's validation cases)")
    logits.add_argument("-gt", metavar="LABELS", help="their references")
    logits.add_argument("--names", nargs="+", metavar="NAME", help="of the methods, one a model (default: trainers)")
    logits.add_argument("-device", choices=("auto", "cpu", "cuda", "mps"), default="auto", help="default: auto")
    logits.add_argument("-o", default="logits", metavar="FOLDER", help="must not exist (default: %(default)s)")
    logits.set_defaults(run=_logits)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def _add_summaries(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "summaries", nargs="+", metavar="SUMMARY", help="calibration_summary.json, or the folder that holds it"
    )
    command.add_argument(
        "--names", nargs="+", metavar="NAME", help="of the methods, one a summary (default: trainer, or folder)"
    )
    command.add_argument(
        "--datasets", nargs="+", metavar="NAME", help="of the data sets, one a summary (default: nnU-Net's names)"
    )
    command.add_argument("--baseline", metavar="NAME", help="method to hold the others against (default: the first)")


def _demo(options: argparse.Namespace) -> int:
    import signal

    from nnunet_nacl.demo import run_demo

    # However it is ended, it must end the nnU-Net command that is running. Shells start background jobs without SIGINT.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    run_demo(options.o, device=options.device)
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    from pathlib import Path

    from nnunet_nacl.evaluation import Settings, evaluate_folder, evaluate_model

    model = {"trainer": options.tr, "plans": options.p, "folds": options.f}
    if options.d is None or options.c is None:
        if options.pred_folder is None or any(value is not None for value in (options.d, options.c, *model.values())):
            options.usage_error("expected either GT_FOLDER PRED_FOLDER or -d DATASET -c CONFIGURATION [-tr -p -f].")
    elif options.gt_folder or options.djfile or options.pfile:
        options.usage_error("GT_FOLDER, PRED_FOLDER, -djfile and -pfile do not go with -d -c: a model has its own.")
    common: dict[str, Any] = {
        "output": options.o,
        "settings": Settings(
            voxels=tuple(options.voxels),
            num_bins=options.bins,
            boundary_mm=options.boundary_mm,
            surface=options.surface,
            tolerance_mm=options.tolerance_mm,
            protocol=options.protocol,
        ),
        "num_processes": _default_num_processes() if options.np is None else options.np,
        "num_parts": options.num_parts,
        "part_id": options.part_id,
        "overwrite": options.overwrite,
    }
    if options.d is None:
        name = Path(options.pred_folder).resolve().name
        result = evaluate_folder(
            options.gt_folder, options.pred_folder, dataset_json=options.djfile, plans=options.pfile, **common
        )
    else:
        name = options.tr or "nnUNetTrainer"
        chosen = {key: value for key, value in model.items() if value is not None}
        result = evaluate_model(options.d, options.c, **chosen, **common)
    return _print_result(name, result, result.file, forgive_missing=options.chill)


def _merge(options: argparse.Namespace) -> int:
    from pathlib import Path

    from nnunet_nacl.evaluation import FolderResult, merge_results

    result = merge_results([FolderResult.read(summary) for summary in options.summaries])
    result.write(options.o)
    return _print_result(Path(options.o).stem, result, options.o, forgive_missing=options.chill)


def _default_num_processes() -> int:
    cores = os.cpu_count() or 1
    return min(int(os.environ.get("nnUNet_def_n_proc", "8")), cores)  # noqa: SIM112 - nnU-Net's variable


def _print_result(name: str, result: "FolderResult", file: "str | Path | None", *, forgive_missing: bool) -> int:
    """Print the table and what was skipped; returns the exit status."""
    from nnunet_nacl.evaluation import format_table

    print(format_table({name: result}))
    total = len(result.cases) + len(result.skipped)
    print(f"Evaluated {len(result.cases)} of {total} cases; all figures are in {file}")
    for entry in result.skipped:
        print(f"skipped {entry.case}: {entry.reason}", file=sys.stderr)
    failed = any(not (entry.missing and forgive_missing) for entry in result.skipped)
    return 1 if failed or not result.cases else 0


def _report(options: argparse.Namespace) -> int:
    from nnunet_nacl.report import read_results, write_report

    results = read_results(options.summaries, names=options.names, datasets=options.datasets)
    command = shlex.join(["nnunet_nacl", *options.arguments])
    write_report(results, options.o, baseline=options.baseline, images=options.images, command=command)
    print(f"Wrote {options.o}")
    return 0


def _table(options: argparse.Namespace) -> int:
    from nnunet_nacl.report import read_results, write_table

    results = read_results(options.summaries, names=options.names, datasets=options.datasets)
    text = write_table(
        results, options.table, output=options.o, form=options.format, baseline=options.baseline, voxels=options.voxels
    )
    print(f"Wrote {options.o}" if options.o else text, end="\n" if options.o else "")
    return 0


def _plot(options: argparse.Namespace) -> int:
    from nnunet_nacl.report import plot, read_results

    results = read_results(options.summaries, names=options.names, datasets=options.datasets)
    file = options.o or f"{options.kind}.svg"
    plot(
        results,
        options.kind,
        file,
        baseline=options.baseline,
        voxels=options.voxels,
        classes=options.classes,
        case=options.case,
        images=options.images,
    )
    print(f"Wrote {file}")
    return 0


def _experiment(options: argparse.Namespace) -> int:
    import signal
    from pathlib import Path

    from nnunet_nacl import experiments

    if options.show:
        file = options.study if options.study.endswith(".yaml") else experiments.study_file(options.study)
        print(Path(file).read_text(encoding="utf-8"), end="")
        return 0
    if options.d is None or options.c is None:
        options.usage_error("the following arguments are required: -d, -c")
    if options.study == "all" and options.methods:
        options.usage_error("--methods does not go with all: methods differ between studies.")
    names = experiments.STUDIES if options.study == "all" else [options.study]
    files = [name if name.endswith(".yaml") else experiments.study_file(name) for name in names]
    if options.executor == "local":
        device = experiments.find_device(options.device)
    else:  # not this machine's
        device = options.device if options.device != "auto" else "cuda" if options.gpus else "cpu"
    planned = [
        experiments.plan_experiment(
            experiments.read_study(file).chosen(options.methods),
            options.d,
            options.c,
            plans=options.p,
            folds=options.f,
            budget=experiments.Budget(options.epochs, options.iterations, options.paper_schedule),
            output=options.o,
            device=device,
            keep=options.keep,
            surface=options.surface,
            disable_tta=options.disable_tta,
            num_processes=options.np,
            command=shlex.join(["nnunet_nacl", *options.arguments]),
        )
        for file in files
    ]
    if options.status:
        print(experiments.format_status(planned, at_once=options.jobs))
        return 0
    if options.executor == "commands":
        experiments.print_commands(planned, ["nnunet_nacl", *_without(options.arguments, "--executor")])
        return 0
    if options.executor == "slurm":
        slurm = experiments.Slurm(options.partition, options.gpus, options.hours, options.memory_gb, options.cpus)
        experiments.submit_experiments(planned, slurm)
        return 0
    # However it is ended, it must end the commands that are running. Shells start background jobs without SIGINT.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    outcome = experiments.run_experiments(planned, at_once=options.jobs)
    for job, failure in outcome.failures.items():
        print(f"\nfailed: {job.run}: {failure}", file=sys.stderr)
    return 1 if outcome.failures else 0


def _without(arguments: list[str], option: str) -> list[str]:
    """The arguments without an option, which may be abbreviated, and its value."""
    kept, skip = [], False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        is_option = len(name) > 3 and option.startswith(name)
        if not skip and not is_option:
            kept.append(argument)
        skip = is_option and not equals
    return kept


def _calibrate_fit(options: argparse.Namespace) -> int:
    from nnunet_nacl.posthoc import fit_folder, fit_model

    model = {"trainer": options.tr, "plans": options.p, "folds": options.f}
    common: dict[str, Any] = {
        "method": options.method,
        "voxels": options.voxels,
        "images": options.i,
        "output": options.o,
        "num_voxels": options.samples,
        "seed": options.seed,
    }
    if options.d is None or options.c is None:
        if options.pred_folder is None or any(value is not None for value in (options.d, options.c, *model.values())):
            options.usage_error("expected either GT_FOLDER PRED_FOLDER or -d DATASET -c CONFIGURATION [-tr -p -f].")
        found = fit_folder(
            options.gt_folder, options.pred_folder, dataset_json=options.djfile, plans=options.pfile, **common
        )
    else:
        if options.gt_folder or options.djfile or options.pfile:
            options.usage_error("GT_FOLDER, PRED_FOLDER, -djfile and -pfile do not go with -d -c.")
        found = fit_model(options.d, options.c, **{k: v for k, v in model.items() if v is not None}, **common)
    print(f"{found.summary()}\nWrote {found.file}")
    return 1 if found.skipped else 0


def _calibrate_apply(options: argparse.Namespace) -> int:
    from nnunet_nacl.posthoc import apply_folder

    done = apply_folder(
        options.fit,
        options.pred_folder,
        options.o,
        images=options.i,
        dataset_json=options.djfile,
        plans=options.pfile,
        force=options.force,
    )
    print(done.summary())
    return 1 if done.skipped else 0


def _logits(options: argparse.Namespace) -> int:
    from nnunet_nacl.experiments import find_device
    from nnunet_nacl.logits import compare_logits

    without = compare_logits(
        options.model_folders,
        options.o,
        fold=options.f,
        names=options.names,
        images=options.i,
        labels=options.gt,
        device=find_device(options.device),
    )
    for name, reason in without.items():
        print(f"{name} is not in max_logits: {reason}", file=sys.stderr)
    print(f"Wrote {options.o}")
    return 0


def _convert(options: argparse.Namespace) -> int:
    from nnunet_nacl.datasets import convert

    print(f"Wrote {convert(options.name, options.source, dataset_id=options.d, output=options.o)}")
    return 0


def _split(options: argparse.Namespace) -> int:
    from nnunet_nacl.datasets import split_folds, split_test

    if options.test is None and options.val is None and options.folds is None:
        options.usage_error("expected --test, --val or --folds.")
    if (options.test is None) != (options.output_id is None):
        options.usage_error("--test and -o go together: the split is a new data set.")
    dataset = options.d
    common = {"by_patient": options.by_patient, "seed": options.seed}
    if options.test is not None:
        print(f"Wrote {split_test(dataset, test=options.test, output_id=options.output_id, **common)}")
        dataset = options.output_id
    if options.val is not None or options.folds is not None:
        print(f"Wrote {split_folds(dataset, val=options.val, folds=options.folds, **common)}")
    return 0


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
    return 0


def _link(_: argparse.Namespace) -> int:
    from nnunet_nacl.linking import link

    print(link())
    return 0


def _unlink(_: argparse.Namespace) -> int:
    from nnunet_nacl.linking import unlink

    print(unlink())
    return 0


def _export(options: argparse.Namespace) -> int:
    from nnunet_nacl.export import NOTE_NAME, export_model

    output = export_model(options.model_folder, options.o)
    print(f"Wrote {output}. A stock nnU-Net runs it: see {NOTE_NAME} there.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
