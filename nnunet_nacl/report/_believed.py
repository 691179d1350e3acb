"""Whether a method's confidences can be believed, in a sentence."""

from collections.abc import Sequence

from nnunet_nacl.report._comparison import Comparison, Method
from nnunet_nacl.report._metrics import Metric, over_confidence
from nnunet_nacl.report._reliability import Reliability, top_label_curves
from nnunet_nacl.report._wording import capitalized, listed, these_cases

_ASKED = 0.9
"""The confidence that the answer is about."""
_OFF = 0.01
"""Confidences that are off by more than this on average cannot be believed. Most voxels of near are easy, and every
model is right there: one that is off by 0.025 may be right in 71 % of the voxels where it says 90 %."""
_OFF_WHERE_ASKED = 0.05
"""Nor can those of a model that says 90 % and is right less than 85 % or more than 95 % of the time."""


def answer_about(comparison: Comparison, names: Sequence[str], metric: Metric) -> str:
    """Whose confidences can be believed, and how often methods are right where they say 90 %; empty without voxels."""
    curves = {name: top_label_curves(comparison, name, metric.voxels)[0] for name in names}
    accuracies = {name: curve.accuracy_at(_ASKED) for name, curve in curves.items() if curve.share.any()}
    believed = {name: _can_be_believed(comparison[name], metric, curves[name]) for name in accuracies}
    sure, explained = f"{100 * _ASKED:.0f} %", False
    sentences: list[str] = []
    for answer in (True, False, None):
        group = [name for name in accuracies if believed[name] is answer]
        if not group:
            continue
        reasons = []
        for name in group:
            accuracy, called = accuracies[name], name if len(group) > 1 else "it"
            if accuracy is None:
                reasons.append(f"{called} hardly ever says {sure}")
            elif explained:
                reasons.append(f"{name}, {100 * accuracy:.0f} %" if len(group) > 1 else f"{100 * accuracy:.0f} %")
            else:
                region = f"for {comparison.structures[0]}, " if comparison.has_regions else ""
                reasons.append(f"{region}where {called} says {sure}, it is right {100 * accuracy:.0f} % of the time")
                explained = True
        whose = f"{'those' if sentences else 'the confidences'} of {listed(group)}"
        if answer is None:
            does = "does" if len(comparison.cases) == 1 else "do"
            claim = f"{these_cases(len(comparison.cases))} {does} not tell whether {whose} can be believed"
        elif answer:
            claim = f"{whose} can be believed"
        else:
            claim = f"{whose} cannot{'' if sentences else ' be believed'}"
        sentences.append(f"{capitalized(claim)}: {'; '.join(reasons)}.")
    return " ".join(sentences)


def _can_be_believed(method: Method, metric: Metric, curve: Reliability) -> bool | None:
    """Whether confidences can be believed; None if the cases do not tell.

    They cannot if the 95 % interval of their sign, or of the accuracy at 90 %, lies beyond what is allowed. They can if
    that of the ECE lies within, and so does the accuracy itself. ECE alone cannot show that they cannot: with few cases
    even a perfectly calibrated model has one above 0.
    """
    low, high = over_confidence(metric.voxels).of(method).interval
    least, most = curve.accuracy_interval_at(_ASKED)
    if low > _OFF or high < -_OFF or least > _ASKED + _OFF_WHERE_ASKED or most < _ASKED - _OFF_WHERE_ASKED:
        return False
    accuracy = curve.accuracy_at(_ASKED)
    is_close = accuracy is None or abs(accuracy - _ASKED) <= _OFF_WHERE_ASKED
    return True if is_close and metric.of(method).interval[1] <= _OFF else None
