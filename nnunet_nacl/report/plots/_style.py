"""How plots look, how several stand side by side, and how they are saved."""

import base64
import io
import json
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nnunet_nacl.files import Kind, check_file, whole_file

INK = "#1b1c1d"
"""The color of text and axes; in a page it becomes the color of the page's text, dark or light."""

# Okabe and Ito's colors, which color-blind readers can tell apart, without black (unreadable on dark pages), the light
# ones darkened: each has a contrast of at least 3 : 1 with the page, light or dark. Markers differ too, so that none
# depends on color alone.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#2F9BD6", "#B87F00", "#706A00", "#808080")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "p", "h")
_GLYPHS = "●■▲◆▼✚✖★◀▶⬟⬢"
_PARAMETERS: Any = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "text.parse_math": False,  # a method may be called a$b$c
    "svg.fonttype": "none",
    "svg.hashsalt": "nnunet_nacl",  # so that the same plot is the same file
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
}

_PLOT = Kind(
    "a plot",
    re.compile(
        rb"\A\x89PNG.*Software\0nnunet_nacl|<dc:title>nnunet_nacl</dc:title>|/Creator \(nnunet_nacl\)", re.DOTALL
    ),
)
_ENDINGS = (".svg", ".pdf", ".png")
_RESOLUTION = 110  # of images within plots on the page, in dots per inch
_TAG = re.compile(r"<[^>]*>")
_HOVER = "hover-"
_HOVERED = re.compile(rf'<g id="{_HOVER}([A-Za-z0-9_=-]+)">(.*?)</g>', re.DOTALL)
_SHAPE = re.compile(r"(<(path|use)\b[^>]*)/>")
_REFERENCE = re.compile(r'(?:url\(|href=")#([^)"]+)')


def color_of(names: Sequence[str], name: str) -> str:
    """The color of a method, by its position among all names."""
    return _COLORS[list(names).index(name) % len(_COLORS)]


def marker_of(names: Sequence[str], name: str) -> str:
    """The marker of a method, by its position among all names."""
    return _MARKERS[list(names).index(name) % len(_MARKERS)]


def glyph_of(names: Sequence[str], name: str) -> str:
    """A character that looks like the marker of a method."""
    return _GLYPHS[list(names).index(name) % len(_GLYPHS)]


def wrapped(name: str, width: int = 24, lines: int = 3) -> str:
    r"""A name in lines that fit into a plot, broken after ``_``, ``-`` and blanks; a very long one loses its middle.

    >>> wrapped("NACL_weight0p2_gaussian_sigma2_100epochs")
    'NACL_weight0p2_gaussian_\nsigma2_100epochs'
    """
    name = " ".join(name.split())
    if len(name) > width * lines:
        half = width * lines // 2
        name = f"{name[: half - 1]}…{name[-half:]}"
    rows = [""]
    for piece in re.split(r"(?<=[_\s-])", name):
        for start in range(0, len(piece), width):
            part = piece[start : start + width]
            if rows[-1] and len(rows[-1]) + len(part) > width:
                rows.append("")
            rows[-1] += part
    return "\n".join(rows)


@contextmanager
def plot_style() -> Iterator[None]:
    """Within this context, plots have our style. Outside, a notebook's own style stays."""
    with matplotlib.rc_context(_PARAMETERS):
        yield


def axes_or_new(ax: Axes | None, *, projection: str | None = None) -> Axes:
    """The given axes, or those of a new figure, which a notebook shows."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt  # only when needed: it chooses a backend

    return plt.figure(figsize=(3.6, 3.6), layout="constrained").add_subplot(projection=projection)


@dataclass(frozen=True)
class Panel:
    """A plot that fills one axes.

    Attributes:
        draw: draws on the axes that it is given.
        description: what it shows, in words.
        polar: whether it needs polar axes.
    """

    draw: Callable[[Axes], object]
    description: str
    polar: bool = False


def draw_panels(panels: Sequence[Panel], *, columns: int = 3, size: float = 3.4) -> Figure:
    """Draw panels in rows of ``columns``, each ``size`` inches wide."""
    with plot_style():
        columns = min(columns, len(panels))
        rows = math.ceil(len(panels) / columns)
        figure = Figure(figsize=(size * columns, size * 1.15 * rows))
        if len(panels) > 1:  # a single one is cropped when it is saved, which is enough
            figure.set_layout_engine("constrained")
        for number, panel in enumerate(panels, start=1):
            panel.draw(figure.add_subplot(rows, columns, number, projection="polar" if panel.polar else None))
    return figure


def hover(artist: Artist, texts: Sequence[str]) -> None:
    """Give the points of a line, or a bar, texts that an SVG shows where the mouse rests.

    Args:
        artist: a line with markers, or a bar.
        texts: one for each point that is drawn, in their order.
    """
    artist.set_gid(_HOVER + base64.urlsafe_b64encode(json.dumps(texts).encode()).decode())


def _with_titles(svg: str) -> str:
    """The texts of :func:`hover` as ``<title>`` elements."""

    def of_group(group: re.Match[str]) -> str:
        texts = json.loads(base64.urlsafe_b64decode(group[1]))
        shapes = list(_SHAPE.finditer(group[2]))
        # Of a line, the uses of its marker follow its path and the marker's definition.
        points = [one for one in shapes if one[2] == "use"] or shapes
        if len(points) != len(texts):
            return f"<g>{group[2]}</g>"
        pieces, end = [], 0
        for point, text in zip(points, texts, strict=True):
            pieces += [group[2][end : point.start()], f"{point[1]}><title>{escape(text)}</title></{point[2]}>"]
            end = point.end()
        return f"<g>{''.join(pieces)}{group[2][end:]}</g>"

    return _HOVERED.sub(of_group, svg)


def check_plot_file(file: str | Path, *, overwrite: bool = False) -> Path:
    """Return the path of a plot if it may be written.

    Raises:
        OSError: as for :func:`nnunet_nacl.files.check_file`.
        ValueError: its ending is none of ``.svg``, ``.pdf`` and ``.png``.
    """
    file = check_file(file, _PLOT, overwrite=overwrite)
    if file.suffix.lower() not in _ENDINGS:
        raise ValueError(f"{file}: expected a name that ends with .svg, .pdf or .png.")
    return file


def save_plot(figure: Figure, file: Path, *, dpi: int = 200, overwrite: bool = False) -> None:
    """Write a figure, completely or not at all, in the format that the file's ending says.

    Raises:
        OSError: it cannot be written, or there is a file that is no plot of ours, which ``overwrite`` replaces.
    """
    form = file.suffix[1:].lower()
    # Drawn in memory: where a disk is full, Matplotlib's writers leave errors of their own.
    stream = io.BytesIO()
    with plot_style():
        creator = {"Software" if form == "png" else "Creator": "nnunet_nacl"}
        figure.savefig(stream, format=form, dpi=dpi, bbox_inches="tight", metadata=creator)
    drawn = stream.getvalue()
    if form == "svg":
        drawn = _with_titles(drawn.decode()).encode()
    with whole_file(file, _PLOT, overwrite=overwrite) as partial:
        partial.write_bytes(drawn)


def to_svg(figure: Figure, *, description: str, prefix: str) -> str:
    """Return an ``<svg>`` element for use within a page: themed by it, described for screen readers, and small.

    Args:
        figure: drawn with our style; its text and axes get the color of the page's text.
        description: what a screen reader says.
        prefix: of ids; a different one for every plot of the page.
    """
    stream = io.StringIO()
    options: Any = {"transparent": True, "dpi": _RESOLUTION, "bbox_inches": "tight", "metadata": {"Date": None}}
    with plot_style(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the browser has its own fonts
        figure.savefig(stream, format="svg", **options)
    text = _with_titles(stream.getvalue())
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)
    referred = {one for tag in _TAG.findall(text) for one in _REFERENCE.findall(tag)}
    text = _TAG.sub(lambda tag: _adapted(tag[0], prefix, referred), text)  # leaves text between the tags as it is
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
    tag = re.sub(r"(font: (?:bold )?[\d.]+px )[^;\"]*", r"\1system-ui, sans-serif", tag)  # Matplotlib before 3.10
    tag = re.sub(r"font-family: [^;\"]*;? ?", "", tag)
    tag = re.sub(r' transform="rotate\(-0 [^"]*"', "", tag)
    tag = re.sub(r"(\.\d\d)\d+", r"\1", tag)
    tag = re.sub(r' id="([^"]+)"', lambda match: f' id="{prefix}{match[1]}"' if match[1] in referred else "", tag)
    return re.sub(r'(url\(|href=")#', rf"\1#{prefix}", tag)
