"""What the benchmarks of trained models share."""

from argparse import Namespace


def of_model(options: Namespace) -> list[str]:
    """The options by which nnU-Net's commands and ours name a model's fold."""
    of_options = {
        "-d": options.data_set,
        "-c": options.configuration,
        "-tr": options.trainer,
        "-f": options.fold,
    }
    return [word for option in of_options.items() for word in option]
