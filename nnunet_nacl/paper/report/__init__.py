"""The paper's additions to page, tables and plots: published values, ranks, radar plots, studies.

>>> from nnunet_nacl.paper.report import page_parts  # write_report(comparisons, "page.html", parts=page_parts())
"""

from nnunet_nacl.paper.report._parts import PLOTS, TABLES, page_parts
from nnunet_nacl.paper.report._published import published

__all__ = ["PLOTS", "TABLES", "page_parts", "published"]
