"""Reports: plain dicts in, one self-contained HTML file out."""

from bothways.report.page import write_report

__all__ = ["write_report"]
