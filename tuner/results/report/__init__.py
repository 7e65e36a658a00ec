"""`report.html`: a run as one page that needs nothing but itself."""

from tuner.results.report.page import report_html, write_report

__all__ = ["report_html", "write_report"]
