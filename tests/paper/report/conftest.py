"""The report's methods and comparison."""

from tests.report.conftest import comparison, results

__all__ = ["comparison", "results"]
