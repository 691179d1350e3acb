"""Trustworthy confidences for nnU-Net: losses, trainers and calibration metrics.

Axis letters used everywhere: ``b`` batch, ``c`` channel, ``K`` classes, ``R`` regions and ``*spatial`` for
``(H, W)`` or ``(D, H, W)``. Nothing heavy is imported here; import the subpackage that you need.
"""

__version__ = "0.2.0"
