"""The ACE by which mL1-ACE's paper compares: rows of docs/results/data/ace.csv.

    python benchmarks/ace.py docs/results/data/ace.csv PREDICTIONS DATASET CONFIGURATION TRAINER FOLD

PREDICTIONS holds what benchmarks/losses.py predicted of the test cases. The metric is ``CACE_fg`` of the whole image in
20 bins (docs/metrics.md), a mean over cases, with its 95 % interval. A row replaces that of the same training.
"""

import tempfile
import time
from pathlib import Path

from losses import identity_of, parser_of, predictions_folder, put
from models import revision
from nnunetv2.paths import nnUNet_raw

from nnunet_nacl.evaluation import evaluate
from nnunet_nacl.metrics import Settings
from nnunet_nacl.nnunet import Predictions


def main() -> None:
    """Evaluate in 20 bins, and write the row."""
    options = parser_of(__doc__).parse_args()
    identity = identity_of(options)
    data_set = identity["data_set"]
    predictions = Predictions.of_folder(
        Path(nnUNet_raw) / data_set / "labelsTs", predictions_folder(options, data_set)
    )
    settings = Settings(num_bins=20)
    with tempfile.TemporaryDirectory() as working:
        result = evaluate(predictions, settings, output=Path(working) / "ace.json")
        ace = result.estimate("CACE_fg", "image")
    low, high = ace.interval
    row = {"date": time.strftime("%Y-%m-%d"), "commit": revision(), "test_cases": len(result.cases)}
    row |= {"ACE": ace.value, "ACE_low": low, "ACE_high": high}
    put(options.csv, [{**identity, **row}])


if __name__ == "__main__":
    main()
