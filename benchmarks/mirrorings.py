"""How long one batch of a window's mirrorings takes, against nnU-Net's one after the other, of a trained model.

    python benchmarks/mirrorings.py DATASET CONFIGURATION TRAINER FOLD

Processor time of one thread of a CPU for the features that ``calibrate`` reads, of some validation cases.
"""

import argparse
import time

import numpy as np
import torch
from models import add_model

from nnunet_nacl.calibrate import _features
from nnunet_nacl.calibrate._fold import TrainedFold
from nnunet_nacl.nnunet import CHECKPOINTS, model_folder

CASES = 6


def main() -> None:
    """Print the size of the window, and both medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_model(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    fold = TrainedFold.open(
        model_folder(options.data_set, options.configuration, trainer=options.trainer),
        options.fold,
        checkpoint=CHECKPOINTS["final"],
        device="cpu",
        mirroring=True,
    )
    window = fold.reader.predictor.configuration_manager.patch_size
    ways = {"one after the other": 0, "in one batch": int(np.prod(window))}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for name in fold.cases.names[:CASES]:
        image, *_ = fold.cases.load(name)
        for way, largest in ways.items():
            _features._SMALL = largest
            start = time.process_time()
            fold.reader.features(image)
            seconds[way].append(time.process_time() - start)
    print(f"windows of {' × '.join(map(str, window))}, {len(seconds['in one batch'])} cases")
    for way, of_cases in seconds.items():
        print(f"{way}: {np.median(of_cases):.2f} s a case")


if __name__ == "__main__":
    main()
