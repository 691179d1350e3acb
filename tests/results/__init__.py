"""README and the docs say what docs/results/data holds: tables, and sentences with and without numbers."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))  # whose modules read the data and write the tables
