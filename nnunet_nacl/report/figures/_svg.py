"""Figures as SVG that stands within a page: themed by it, described for screen readers, and small."""

import io
import re
from html import escape

from matplotlib.figure import Figure

from nnunet_nacl.report.figures._style import INK, figure_style

_RESOLUTION = 110  # of images within figures, in dots per inch


def to_svg(figure: Figure, *, description: str, prefix: str) -> str:
    """Return an ``<svg>`` element whose text and axes have the color of the page's text.

    Args:
        figure: drawn with our style.
        description: what a screen reader says.
        prefix: of ids; unlike for every figure of the page.
    """
    stream = io.StringIO()
    with figure_style():
        figure.savefig(
            stream, format="svg", transparent=True, dpi=_RESOLUTION, bbox_inches="tight", metadata={"Date": None}
        )
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = text.replace(INK, "currentColor")
    text = re.sub(r"(font: (?:bold )?[\d.]+px )[^;\"]*", r"\1system-ui, sans-serif", text)
    text = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\.\d\d)\d+", r"\1", tag[0]), text)  # 0.01 points are enough
    text = _with_prefixed_ids(text, prefix)
    text = re.sub(r"\s*\n\s*", "\n", text)
    opening = re.match(r"<svg\b[^>]*>", text)
    assert opening is not None
    box = re.search(r'viewBox="[^"]*"', opening[0])
    assert box is not None
    width = figure.get_size_inches()[0]
    return (
        f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" {box[0]} role="img" aria-label="{escape(description)}" '
        f'style="max-width:{width * 1.25:.1f}in">{text[opening.end() :].strip()}'
    )


def _with_prefixed_ids(text: str, prefix: str) -> str:
    """Ids that are referred to get a prefix; the others go."""
    used = set(re.findall(r'(?:url\(|href=")#([^)"]+)', text))
    text = re.sub(r' id="([^"]+)"', lambda found: f' id="{prefix}{found[1]}"' if found[1] in used else "", text)
    return re.sub(r'(url\(|href=")#', rf"\1#{prefix}", text)
