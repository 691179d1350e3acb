"""The cases of a folder counted, in processes; finished ones are kept, and taken up when their files are the same."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from tqdm import tqdm

from nnunet_nacl.files import Journal, hidden, whole_file
from nnunet_nacl.json_files import load_json, typed
from nnunet_nacl.nnunet import CaseFiles, DataSet, file_state, image_file
from nnunet_nacl.review._counts import CaseCounts, CountSettings, count_case
from nnunet_nacl.review._fit_file import SkippedCase
from nnunet_nacl.workers import results_of

COUNTING = 1
"""To be raised if the way in which cases are counted changes: kept ones are then counted again."""

States = dict[str, list[str | int] | None]
"""The state of each file of a case by which a changed one is known."""


@dataclass(frozen=True)
class CountedCase:
    """A case and what was counted of it.

    Attributes:
        case: its name.
        states: of its files before they were read.
        counts: of it.
    """

    case: str
    states: States
    counts: CaseCounts


@dataclass(frozen=True)
class Basis:
    """What counts depend on, beside the files: those of another basis are not taken up.

    Attributes:
        settings: of the counts.
        labels: ``labels`` of ``dataset.json``, as JSON, in their order.
        regions_class_order: of ``dataset.json``.
        reader: name of nnU-Net's class that reads the label maps.
        counting: see ``COUNTING``.
    """

    settings: CountSettings
    labels: str
    regions_class_order: list[int]
    reader: str
    counting: int = COUNTING

    @classmethod
    def of(cls, data_set: DataSet, settings: CountSettings) -> "Basis":
        """That of counts by this version."""
        reader = type(data_set.reader).__name__
        return cls(settings, json.dumps(data_set.labels), list(data_set.meaning.written), reader)


@dataclass(frozen=True)
class _Kept:
    basis: Basis
    case: CountedCase


def states_of(files: CaseFiles, settings: CountSettings) -> States:
    """The state of everything that is read of a case."""
    states: States = dict(files.states())
    for number, folder in enumerate(settings.members):
        states[f"member {number}"] = file_state(Path(folder) / files.prediction.name)
    if settings.images is not None:
        with suppress(FileNotFoundError):
            ending = files.prediction.name.removeprefix(files.name)
            states["image"] = file_state(image_file(Path(settings.images), files.name, ending))
    return states


class CountJournal(Journal):
    """Counted cases, kept until the output is written.

    Args:
        output: beside which they are kept.
        basis: of the counts.

    Raises:
        OSError: the folder cannot be made, or is a link.
    """

    def __init__(self, output: Path, basis: Basis) -> None:
        super().__init__(hidden(output, ".cases"), ".json")
        self._basis = basis

    def finished(self) -> dict[str, CountedCase]:
        """The cases that are kept, whether or not their files are as they were."""
        found: dict[str, CountedCase] = {}
        for file in self.files():
            with suppress(OSError, ValueError):  # what cannot be read is counted again
                kept = typed(load_json(file), _Kept, str(file), "finished case")
                if kept.basis == self._basis:
                    found[kept.case.case] = kept.case
        return found

    def keep(self, case: CountedCase) -> None:
        """Keep a finished case."""
        with whole_file(self.file_of(case.case)) as partial_file:
            partial_file.write_text(json.dumps(asdict(_Kept(self._basis, case)), allow_nan=False))


def count_cases(
    cases: Sequence[CaseFiles],
    data_set: DataSet,
    settings: CountSettings,
    *,
    journal: CountJournal,
    known: Mapping[str, CountedCase],
    num_processes: int,
) -> tuple[list[CountedCase], list[SkippedCase]]:
    """Count each case; a bad one is skipped with the reason, and takes no other with it.

    Args:
        cases: of different names.
        data_set: how to read them.
        settings: what to count.
        journal: where finished cases are kept.
        known: cases counted before on the same basis, by name; those whose files have changed are counted again.
        num_processes: how many are counted at a time.

    Returns:
        The counted cases and the skipped ones, each in the order of their names.
    """
    known = {**known, **journal.finished()}
    done: dict[str, CountedCase] = {}
    skipped: list[SkippedCase] = []
    left: list[CaseFiles] = []
    for case in cases:
        reason = case.missing(truth=settings.truth)
        if reason is not None:
            skipped.append(SkippedCase(case.name, reason))
        elif case.name in known and known[case.name].states == states_of(case, settings):
            done[case.name] = known[case.name]
        else:
            left.append(case)
    attempt = partial(_attempt, data_set=data_set, settings=settings)
    with tqdm(total=len(cases), initial=len(cases) - len(left), desc="reviewing", unit="case") as progress:
        for files, outcome in results_of(attempt, left, num_processes=num_processes, died=_died):
            if isinstance(outcome, CountedCase):
                journal.keep(outcome)
                done[files.name] = outcome
            else:
                skipped.append(outcome)
            progress.update()
    return [done[name] for name in sorted(done)], sorted(skipped, key=lambda entry: entry.case)


def _attempt(files: CaseFiles, data_set: DataSet, settings: CountSettings) -> CountedCase | SkippedCase:
    states = states_of(files, settings)
    try:
        return CountedCase(files.name, states, count_case(files, data_set=data_set, settings=settings))
    except (ValueError, FileNotFoundError) as error:
        return SkippedCase(files.name, str(error))
    except Exception as error:  # noqa: BLE001 - damaged files make readers raise nearly anything
        return SkippedCase(files.name, f"{files.probabilities}: {type(error).__name__}: {error}")


def _died(files: CaseFiles) -> CountedCase | SkippedCase:
    reason = f"{files.probabilities}: the process reviewing it was killed, perhaps for lack of memory."
    return SkippedCase(files.name, reason)
