"""The page: one self-contained HTML file. Its sentences stand in ``templates/report.html.j2``."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup
from tqdm import tqdm

from nnunet_nacl import metrics
from nnunet_nacl.files import check_output
from nnunet_nacl.pages import write_page
from nnunet_nacl.pictures import label_color
from nnunet_nacl.report import _first_screen, _formats, _layers, _reliability, _tables, plots
from nnunet_nacl.report._choice import voxels_text
from nnunet_nacl.report._comparison import Comparison
from nnunet_nacl.report._slices import chosen_cases
from nnunet_nacl.report.panels import Panel, draw_panels, to_svg
from nnunet_nacl.typing import ByName


@dataclass(frozen=True)
class PageParts:
    """Additions of another package to the page, by a template that extends the report's; by default none.

    Attributes:
        template: its path in nnunet_nacl.
        content: what this template uses besides, by name.
    """

    template: str = "report/templates/report.html.j2"
    content: Mapping[str, object] = field(default_factory=dict)


def is_page(file: Path) -> bool:
    """Whether a file is a page that ``write_report`` wrote."""
    return file.is_file() and b'<meta name="generator" content="nnunet_nacl' in file.read_bytes()


def write_report(
    comparisons: Sequence[Comparison],
    file: str | Path,
    *,
    images: str | Path | None = None,
    parts: PageParts | None = None,
    overwrite: bool = False,
) -> None:
    """Write the page that compares methods.

    Args:
        comparisons: of each data set, as ``compare_all`` returns them.
        file: the page.
        images: folder of the images; by default ``imagesTs`` beside ``labelsTs`` and so on.
        parts: what another part of this package shows besides, such as ``nnunet_nacl.paper.report.page_parts()``.
        overwrite: replace a file that exists.
    """
    file = check_output(file, overwrite=overwrite)
    images = None if images is None else Path(images)
    parts = parts or PageParts()
    # Verdicts are of voxels that labels do not choose
    comparisons = [comparison.over(None) for comparison in comparisons]
    sections = [
        Section(f"d{number}", comparison, file.parent, images)
        for number, comparison in enumerate(comparisons, start=1)
    ]
    content = {
        "sections": sections,
        "comparisons": comparisons,
        "first_screen": _first_screen,
        "metrics": metrics,
        "tables": _tables,
        "formats": _formats,
        "plots": plots,
        "layers": _layers,
        "limits": _reliability,
        **parts.content,
    }
    with tqdm(desc="drawing", unit=" plots") as progress:

        def drawn(panel: Panel) -> Markup:
            """Return a picture of the page."""
            progress.update()
            # Matplotlib and to_svg escape texts.
            return Markup(to_svg(draw_panels([panel])))  # noqa: S704

        filters = {
            "voxels": voxels_text,
            "percent": lambda share: f"{100 * share:g}",
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
    """

    id: str
    comparison: Comparison
    page_folder: Path
    images: Path | None

    @cached_property
    def reviews(self) -> dict[str, str]:
        """Method -> the address of its review's page."""
        reviews = {}
        for name, result in self.comparison.results.items():
            page = result.folders("prediction")[0] / "review.html"
            if page.is_file():
                reviews[name] = quote(Path(os.path.relpath(page, self.page_folder)).as_posix())
        return reviews

    @property
    def reliability(self) -> dict[metrics.Voxels, list[Panel]]:
        """Voxel set, the main one first -> diagrams of all methods together and, of several, of each.

        None over the image, unless it is the main one: its easy background would hide the rest.
        """
        main = self.comparison.choice.main
        found: dict[metrics.Voxels, list[Panel]] = {one: [] for one in (main, *metrics.VOXEL_SETS)}
        for voxels in found:
            panels = partial(plots.reliability_panels, self.comparison, voxels, title="")
            if voxels != "image" or voxels == main:
                found[voxels] = panels(overlaid=True)
                if len(self.comparison.names) > 1:
                    found[voxels] += panels()
        return found

    @cached_property
    def cases(self) -> dict[str, ByName]:
        """Case that is shown -> its id, title, reliability diagrams, and pictures."""
        cases = {}
        for number, (case, title) in enumerate(chosen_cases(self.comparison).items(), 1):
            alone = self.comparison.of_case(case)
            cases[case] = {
                "id": f"{self.id}-case-{number}",
                "title": title,
                "curves": plots.reliability_panels(alone, overlaid=True, title=case),
                "pictures": _layers.case_pictures(self.comparison, case, self.images),
            }
        return cases

    @cached_property
    def settings(self) -> dict[str, dict[str, str]]:
        """Method -> its calibration, settings and versions, as JSON but for texts; after the first, what differs."""
        settings = {}
        shared: dict[str, str] = {}
        for name, result in self.comparison.results.items():
            values = {
                "calibration": self.comparison.calibrated.get(name, "no record"),
                **result.settings_json(),
                "versions": result.counting.versions,
            }
            values = {key: "none" if value is None else value for key, value in values.items()}
            texts = {
                key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                for key, value in values.items()
            }
            settings[name] = {key: text for key, text in texts.items() if text != shared.get(key)}
            shared = shared or texts
        return settings
