"""Array types that several signatures use."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = Any
"""A NumPy array or a tensor."""

Floats = NDArray[np.floating]
"""Probabilities, logits or measurements."""

Labels = NDArray[np.integer]
"""The class of each voxel, as numbers."""

Mask = NDArray[np.bool_]
"""Voxels that count, or that a structure holds."""

ByName = dict[str, Any]
"""Values of any kind by name."""

Singles = NDArray[np.float32]
"""Numbers in single precision."""
