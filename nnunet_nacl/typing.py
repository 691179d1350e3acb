"""Array types that several signatures use."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
"""Probabilities, logits or measurements."""

Labels = NDArray[np.integer]
"""The class of each voxel, as numbers."""

Mask = NDArray[np.bool_]
"""Voxels that count, or that a structure holds."""
