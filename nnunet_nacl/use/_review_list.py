"""The list of a review: its CSV, the JSON file with the judgements beside it, and its text."""

from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nnunet_nacl import __version__
from nnunet_nacl.case_loop import Skipped
from nnunet_nacl.files import check_output, read_json, write_csv, write_json
from nnunet_nacl.typing import ByName
from nnunet_nacl.use._judgement import judgement_table, rows_of
from nnunet_nacl.use._ranking import ranked_cases

if TYPE_CHECKING:  # takes half a second to import, which worker processes need not spend
    from pandas import DataFrame

_FORMAT = "review of nnunet_nacl"
_NUM_LISTED = 10  # cases in the terminal


def check_list(file: Path, *, is_default: bool, overwrite: bool) -> None:
    """Raise an OSError if CSV or JSON file exists or cannot be written; by default, an earlier review is replaced."""
    described = file.with_suffix(".json")
    if is_default:
        with suppress(OSError, ValueError):
            overwrite |= read_json(described, ByName).get("format") == _FORMAT
    for one in (file, described):
        check_output(one, overwrite=overwrite)


@dataclass(frozen=True)
class Review:
    """A review of a folder: the ``table`` is the CSV's, a row for each structure of each case.

    With ground truth it has judgements. ``notes`` concern all cases.
    """

    table: "DataFrame"
    judgements: list[ByName]
    cases: list[str]
    skipped: list[Skipped]
    notes: list[str]
    file: Path

    def summary(self) -> str:
        """Return a text for users: the first cases with their lowest-ranked structure, judgements and notes."""
        lines = ["trust  structure, rank  case"]
        total = len(self.cases)
        for rows in list(ranked_cases(self.table).values())[:_NUM_LISTED]:
            first = rows[0]
            place = f"{first['trust']:5.2f}  {first['structure']}, {first['rank']} of {total}"
            lines.append("  ".join([place, first["case"], *first["reasons"]]))
        if total > _NUM_LISTED:
            lines.append(f"… and {total - _NUM_LISTED} more cases")
        if self.judgements:
            lines += ["", judgement_table(self.judgements)]
        return "\n".join([*lines, *self.notes])

    def write(self, outcomes: "DataFrame | None", fit: str | Path | None) -> None:
        """Write the CSV and, beside it, the judgements with the predictions and truth that they compare."""
        table = self.table.astype(object).where(self.table.notna(), "")
        table["reasons"] = table["reasons"].map("; ".join)
        table = table.map(lambda cell: f"{cell:.6g}" if isinstance(cell, float) else cell)
        content = {
            "format": _FORMAT,
            "version": __version__,
            "fit": None if fit is None else str(fit),
            "judgements": self.judgements,
            "judged": [] if outcomes is None else rows_of(outcomes),
            "notes": self.notes,
            "skipped": [asdict(case) for case in self.skipped],
        }
        # First, since it marks the list beside it as a review's, also if this process is killed in between
        write_json(self.file.with_suffix(".json"), content)
        write_csv(self.file, [table.columns, *table.to_numpy()])
