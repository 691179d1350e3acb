"""The ACE by which mL1-ACE's paper compares: rows of docs/results/data/ace.csv.

    python benchmarks/ace.py docs/results/data/ace.csv PREDICTIONS DATASET CONFIGURATION TRAINER FOLD

PREDICTIONS holds what benchmarks/losses.py predicted of the test cases. The metric is ``CACE_fg`` of the whole image in
20 bins (docs/metrics.md), a mean over cases, with its 95 % interval. A row replaces that of the same training.
"""

import argparse
import tempfile
import time
from pathlib import Path

from losses import KEY, predictions_folder, put
from models import add_model, revision
from nnunetv2.paths import nnUNet_raw

from nnunet_nacl.evaluation import evaluate
from nnunet_nacl.metrics import Settings
from nnunet_nacl.nnunet import Predictions, model_folder


def main() -> None:
    """Evaluate in 20 bins, and write the row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("csv", type=Path)
    parser.add_argument("predictions", type=Path)
    add_model(parser)
    options = parser.parse_args()
    data_set = model_folder(
        options.data_set, options.configuration, trainer=options.trainer
    ).parent.name
    predictions = Predictions.of_folder(
        Path(nnUNet_raw) / data_set / "labelsTs", predictions_folder(options, data_set)
    )
    settings = Settings(voxels=("image",), num_bins=20)
    with tempfile.TemporaryDirectory() as working:
        result = evaluate(predictions, settings, output=Path(working) / "ace.json")
        ace = result.estimate("CACE_fg", "image")
    low, high = ace.interval
    names = [data_set, options.configuration, options.trainer, options.fold, options.training]
    row = {"date": time.strftime("%Y-%m-%d"), "commit": revision(), "test_cases": len(result.cases)}
    row |= {"ACE": ace.value, "ACE_low": low, "ACE_high": high}
    put(options.csv, [{**dict(zip(KEY, names, strict=True)), **row}])


if __name__ == "__main__":
    main()
