"""Reports: plain dicts in, one self-contained HTML file out."""

from bothways.report.page import write_report
from bothways.report.walkthrough import write_walkthrough

__all__ = ["write_report", "write_walkthrough"]
