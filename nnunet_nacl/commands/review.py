"""The commands ``review`` and ``review fit``."""

import argparse
import shlex
import sys
from pathlib import Path

from nnunet_nacl.commands._shared import (
    Commands,
    Parser,
    add_ignore_geometry,
    add_overwrite,
    add_predictions,
    add_processes,
    add_reading,
    chosen_predictions,
    num_processes,
    say_next,
)


def add(commands: Commands) -> None:
    """Add them to the command line."""
    review = commands.add_parser(
        "review",
        help="which cases to look at: predicted Dice, volumes and doubt, worst first",
        description="List the structures of all cases of a folder of predictions made with --save_probabilities, worst "
        "first: predicted Dice, expected volumes, doubt, and the reasons to look at them. No ground truth is needed. "
        "Run again, it goes on where it was interrupted. 'nnunet_nacl review fit' fits intervals to cases with ground "
        "truth; see 'nnunet_nacl review fit -h'. (A folder of that name is ./fit.)",
    )
    review.add_argument("pred_folder", metavar="PRED_FOLDER", help="segmentations and their .npz files")
    review.add_argument(
        "-o", metavar="FILE.csv", help="the list; a .json file goes beside it (default: review.csv in PRED_FOLDER)"
    )
    review.add_argument("--html", metavar="FILE.html", help="a page to work from, too")
    review.add_argument("-i", metavar="IMAGES", help="folder of the images, for the page")
    review.add_argument(
        "--members",
        nargs="+",
        default=[],
        metavar="FOLDER",
        help="predictions of the same cases by two or more folds or seeds: how well they agree",
    )
    review.add_argument("--fit", metavar="FIT.json", help="what review fit wrote: fitted Dice and intervals")
    review.add_argument("--gt", metavar="GT_FOLDER", help="ground truth: judge the list by it")
    add_reading(review)
    add_processes(review)
    add_ignore_geometry(review)
    review.add_argument("--force", action="store_true", help="use the fit even for cases that it was fitted to")
    add_overwrite(review, "count every case anew, and replace what is there, whatever it is")
    review.set_defaults(run=_review)

    review.add_section(
        "examples",
        [
            "nnunet_nacl review predictions --html review.html -i imagesTs",
            "nnunet_nacl review fit -d 4 -c 2d -tr nnUNetTrainerCE -f 0",
            "nnunet_nacl review predictions --fit review_fit.json",
        ],
    )

    fit = Parser(
        prog=f"{review.prog} fit",
        description="Fit predicted Dice, volume intervals and recall thresholds of each structure to predictions with "
        "ground truth: to the validation cases of a model trained with --npz (-d -c -tr -p -f), or to a folder of "
        "predictions made with --save_probabilities (GT_FOLDER PRED_FOLDER).",
    )
    add_predictions(fit)
    fit.add_argument(
        "--coverage",
        type=float,
        default=0.9,
        metavar="C",
        help="share of new cases whose volume lies in its interval, and whose Dice is not below its bound "
        "(default: %(default)s)",
    )
    fit.add_argument("--seed", type=int, default=0, metavar="S", help="of the split of the cases (default: 0)")
    fit.add_argument("-o", metavar="FILE.json", help="default: review_fit.json beside the model or in PRED_FOLDER")
    add_processes(fit)
    add_ignore_geometry(fit)
    add_overwrite(fit)
    fit.set_defaults(run=_fit, usage_error=fit.error)
    review.actions["fit"] = fit


def _review(options: argparse.Namespace) -> int:
    from nnunet_nacl.use import review_folder

    review = review_folder(
        options.pred_folder,
        output=options.o,
        html=options.html,
        images=options.i,
        members=options.members,
        fit=options.fit,
        gt_folder=options.gt,
        dataset_json=options.djfile,
        plans=options.pfile,
        num_processes=num_processes(options),
        force=options.force,
        ignore_geometry=options.ignore_geometry,
        overwrite=options.overwrite,
    )
    print(review.summary())
    total = len(review.cases) + len(review.skipped)
    print(f"Reviewed {len(review.cases)} of {total} cases; the whole list is in {review.file}")
    if options.html:
        print(f"Wrote {options.html}")
    for entry in review.skipped:
        print(f"skipped {entry.case}: {entry.reason}", file=sys.stderr)
    if review.skipped:
        return 1
    page = Path(options.html or "review.html")
    if options.html:
        say_next(f"open {page.resolve().as_uri()} in a browser, and begin at the top")
    else:
        say_next(
            f"nnunet_nacl review {shlex.quote(options.pred_folder)} --html {page} -i IMAGES, for a page to work from"
        )
    return 0


def _fit(options: argparse.Namespace) -> int:
    from nnunet_nacl.use import fit_review

    fit = fit_review(
        chosen_predictions(options),
        coverage=options.coverage,
        output=options.o,
        num_processes=num_processes(options),
        seed=options.seed,
        ignore_geometry=options.ignore_geometry,
        overwrite=options.overwrite,
    )
    print(f"{fit.summary()}\nWrote {fit.file}")
    for entry in fit.skipped:
        print(f"skipped {entry.case}: {entry.reason}", file=sys.stderr)
    if fit.skipped:
        return 1
    say_next(f"nnunet_nacl review PREDICTIONS --fit {shlex.quote(str(fit.file))}")
    return 0
