"""What the benchmarks of trained models share."""

from argparse import ArgumentParser, Namespace


def add_model(parser: ArgumentParser, *, several_folds: bool = False) -> None:
    """The arguments that name a trained model."""
    for name in ("data_set", "configuration", "trainer"):
        parser.add_argument(name)
    parser.add_argument("fold", nargs="+" if several_folds else None)
    parser.add_argument(
        "--training", default="1", help="a number that tells repeated trainings apart"
    )


def of_model(options: Namespace) -> list[str]:
    """The options by which nnU-Net's commands and ours name a model's fold, or folds."""
    folds = [options.fold] if isinstance(options.fold, str) else options.fold
    names = ["-d", options.data_set, "-c", options.configuration, "-tr", options.trainer]
    return [*names, "-f", *folds]
