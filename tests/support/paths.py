"""Where things lie: the checkout, and the material beside it that some tests read."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared"
