"""Time to inflate a stream of probabilities by zlib and isal, and to check a label map; for docs/decisions/0006.

    python benchmarks/inflate.py [--rounds 15]

The medians count. The check is what is done to each label map before it is read: its declared size and its checksum.
"""

import argparse
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import SimpleITK as sitk
from isal import isal_zlib
from predictions import generate

from nnunet_nacl.nnunet import _image_files, _inflate

SHAPE = (128, 320, 320)


def main() -> None:
    """Generate a case, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        generate(Path(name), 2, SHAPE, 1, quiet=True)
        label_map = next((Path(name) / "labels").glob("*.nii.gz"))
        values = sitk.GetArrayViewFromImage(sitk.ReadImage(str(label_map))).size
        with np.load(next((Path(name) / "predictions").glob("*.npz"))) as archive:
            stream = zlib.compress(archive["probabilities"].tobytes())  # as NumPy does it
        print(f"a stream of {len(stream) / 1e6:.0f} MB, a label map of {values / 1e6:.0f} million voxels")
        for library in (zlib, isal_zlib):
            _inflate.library = library
            inflating = _median(lambda library=library: library.decompress(stream), rounds)  # type: ignore[misc]
            checking = _median(lambda: _image_files.check_image_file(label_map), rounds)
            print(f"{library.__name__}: inflates in {inflating:.0f} ms, checks in {checking:.0f} ms")


def _median(call: Callable[[], object], rounds: int) -> float:
    """Milliseconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)


if __name__ == "__main__":
    main()
