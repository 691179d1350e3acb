"""Figures as SVG that stands within a page: themed by it, described for screen readers, and small."""

import io
import re
import warnings
from html import escape
from typing import Any

from matplotlib.figure import Figure

from nnunet_nacl.report.figures._style import INK, figure_style

_TAG = re.compile(r"<[^>]*>")
_REFERENCE = re.compile(r'(?:url\(|href=")#([^)"]+)')
_RESOLUTION = 110  # of images within figures, in dots per inch


def to_svg(figure: Figure, *, description: str, prefix: str) -> str:
    """Return an ``<svg>`` element whose text and axes have the color of the page's text.

    Args:
        figure: drawn with our style.
        description: what a screen reader says.
        prefix: of ids; unlike for every figure of the page.
    """
    stream = io.StringIO()
    options: Any = {"transparent": True, "dpi": _RESOLUTION, "bbox_inches": "tight", "metadata": {"Date": None}}
    with figure_style(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the browser has its own fonts
        figure.savefig(stream, format="svg", **options)
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)
    referred = {one for tag in _TAG.findall(text) for one in _REFERENCE.findall(tag)}
    text = _TAG.sub(lambda tag: _adapted(tag[0], prefix, referred), text)  # what is written in it stays as it is
    text = re.sub(r"\s*\n\s*", "\n", text)
    opening = _TAG.match(text)
    assert opening is not None
    box = re.search(r'viewBox="[^"]*"', opening[0])
    assert box is not None
    width = figure.get_size_inches()[0]
    return (
        f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" {box[0]} role="img" aria-label="{escape(description)}" '
        f'style="max-width:{width * 1.25:.1f}in">{text[opening.end() :].strip()}'
    )


def _adapted(tag: str, prefix: str, referred: set[str]) -> str:
    """A tag with the page's color and font, hundredths of a point, and an id only if something refers to it."""
    tag = tag.replace(INK, "currentColor")
    tag = re.sub(r"(font: (?:bold )?[\d.]+px )[^;\"]*", r"\1system-ui, sans-serif", tag)
    tag = re.sub(r"(\.\d\d)\d+", r"\1", tag)
    tag = re.sub(r' id="([^"]+)"', lambda found: f' id="{prefix}{found[1]}"' if found[1] in referred else "", tag)
    return re.sub(r'(url\(|href=")#', rf"\1#{prefix}", tag)
