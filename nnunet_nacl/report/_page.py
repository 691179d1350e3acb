"""The page: one self-contained HTML file. Its sentences stand in ``templates/report.html.j2``."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

import numpy as np
from markupsafe import Markup
from tqdm import tqdm

from nnunet_nacl import metrics
from nnunet_nacl.evaluation import NEARLY_ALL
from nnunet_nacl.files import check_output
from nnunet_nacl.pages import write_page
from nnunet_nacl.pictures import label_color
from nnunet_nacl.report import _reliability, _slices, _tables, plots
from nnunet_nacl.report._choice import voxels_text
from nnunet_nacl.report._comparison import Comparable, Comparison, comparisons_of
from nnunet_nacl.report.plots import Panel, draw_panels, to_svg
from nnunet_nacl.typing import ByName

_ALL_NAMED = 4
"""Up to so many methods have a sentence each on the first screen; of more, see ``Section.named``."""
_GENERATOR = b'<meta name="generator" content="nnunet_nacl'


@dataclass(frozen=True)
class PageParts:
    """Additions of another package to the page, by a template that extends the report's; by default none.

    Attributes:
        template: its path in nnunet_nacl.
        of_data_set: makes the additions to a data set's section, the template's ``section.more``.
        of_all: makes the additions to the page, the template's ``more_of_all``.
    """

    template: str = "report/templates/report.html.j2"
    of_data_set: Callable[[Comparison], object] = lambda _: None
    of_all: Callable[[Sequence[Comparison]], object] = lambda _: None


def is_page(file: Path) -> bool:
    """Whether a file is a page that ``write_report`` wrote."""
    return file.is_file() and _GENERATOR in file.read_bytes()


def write_report(
    results: Comparable,
    file: str | Path,
    *,
    images: str | Path | None = None,
    parts: PageParts | None = None,
    overwrite: bool = False,
) -> None:
    """Write the page that compares methods.

    Args:
        results: data set -> method -> result, as ``read_results`` gives them, or comparisons of ``compare_all``.
        file: the page.
        images: folder of the images; by default ``imagesTs`` beside ``labelsTs`` and so on.
        parts: what another part of this package shows besides, such as ``nnunet_nacl.paper.report.page_parts()``.
        overwrite: replace a file that exists.
    """
    file = check_output(file, overwrite=overwrite)
    images = None if images is None else Path(images)
    parts = parts or PageParts()
    comparisons = comparisons_of(results)
    sections = [
        Section(f"d{number}", comparison, file.parent, images, parts.of_data_set(comparison))
        for number, comparison in enumerate(comparisons, start=1)
    ]
    content = {
        "sections": sections,
        "more_of_all": parts.of_all(comparisons),
        "metrics": metrics,
        "tables": _tables,
        "plots": plots,
        "slices": _slices,
        "limits": _reliability,
        "nearly_all": NEARLY_ALL,
    }
    with tqdm(desc="drawing", unit=" plots") as progress:

        def drawn(panel: Panel) -> Markup:
            """Return a picture of the page."""
            progress.update()
            # Matplotlib and to_svg escape texts.
            return Markup(to_svg(draw_panels([panel])))  # noqa: S704

        filters = {
            "voxels": voxels_text,
            "number": _tables.number_text,
            "percent": lambda share: f"{100 * share:g}",
            "p": _tables.p_text,
            "cases": lambda number: "1 case" if number == 1 else f"{number} cases",
            "exact": _tables.exact,
            "csv": _tables.to_csv,
            "latex": _tables.to_latex,
            "drawn": drawn,
            "color": label_color,
        }
        write_page(file, parts.template, content, filters)


@dataclass(frozen=True, eq=False)
class Section:
    """A data set's section of the page: what the template shows beside tables and plots of the comparison.

    Attributes:
        id: in the page.
        comparison: of the methods on the data set.
        page_folder: where the page will lie.
        images: folder of the images, if not nnU-Net's.
        more: additions of ``PageParts``.
    """

    id: str
    comparison: Comparison
    page_folder: Path
    images: Path | None
    more: object

    @cached_property
    def named(self) -> list[str]:
        """The methods with a sentence on the first screen: of many, the baseline, the calibrated and the best ones.

        The best are those by each metric that judges calibration.
        """
        comparison = self.comparison
        judging = comparison.choice.judging
        names = [name for name in comparison.names if name not in comparison.finds_nothing]
        names = comparison.orders[judging[0]].names or names
        if len(names) > _ALL_NAMED:
            best = {name for one in judging for name in comparison.orders[one].names[:1]}
            kept = best | {comparison.names[0], *comparison.calibrated}
            names = [name for name in names if name in kept]
        return names

    @cached_property
    def assessed(self) -> list[_reliability.Reliability]:
        """The reliability of all methods that find something, the named ones first."""
        of_methods = self.comparison.reliability[self.comparison.choice.main]
        names = dict.fromkeys([*self.named, *of_methods])
        return [
            of_methods[name]
            for name in names
            if name not in self.comparison.finds_nothing
            and not np.isnan(of_methods[name].pooled["ECE"])
        ]

    @cached_property
    def changes(self) -> dict[str, dict[str, list[str]]]:
        """Method -> ``better`` and ``worse`` -> metrics that judge calibration in which it differs significantly.

        Without errors over voxels that labels choose: a lower one may be of a model that is not sure enough.
        """
        changes: dict[str, dict[str, list[str]]] = {
            name: {"better": [], "worse": []} for name in self.comparison.names[1:]
        }
        judging = self.comparison.choice.judging
        for metric in (one for one in judging if one.voxels not in metrics.BY_LABEL):
            for name, gap in self.comparison.differences[metric].items():
                if gap.is_significant():
                    is_better = (gap.value > 0) == metric.definition.higher_is_better
                    changes[name]["better" if is_better else "worse"].append(metric.title)
        return changes

    @cached_property
    def reviews(self) -> dict[str, str]:
        """Method -> the address of its review's page."""
        reviews = {}
        for name, result in self.comparison.results.items():
            page = result.origin.pred_folders[0] / "review.html"
            if page.is_file():
                reviews[name] = quote(Path(os.path.relpath(page, self.page_folder)).as_posix())
        return reviews

    @cached_property
    def cases(self) -> dict[str, ByName]:
        """Case that is shown -> its id, title, reliability diagrams, and pictures."""
        cases = {}
        for number, (case, title) in enumerate(_slices.chosen_cases(self.comparison).items(), 1):
            alone = self.comparison.of_case(case)
            cases[case] = {
                "id": f"{self.id}-case-{number}",
                "title": title,
                "curves": plots.reliability_panels(alone, overlaid=True, title=case),
                "pictures": _slices.case_pictures(self.comparison, case, self.images),
            }
        return cases

    @cached_property
    def settings(self) -> dict[str, dict[str, str]]:
        """Method -> its calibration, settings and versions, as JSON but for texts."""
        settings = {}
        for name, result in self.comparison.results.items():
            values = {
                "calibration": self.comparison.calibrated.get(name, "no record"),
                **result.origin.settings_json(),
                "versions": result.origin.versions,
            }
            texts = {key: "none" if value is None else value for key, value in values.items()}
            settings[name] = {
                key: text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
                for key, text in texts.items()
            }
        return settings
