"""`report.html`: a run, or a comparison of several, as one page that needs no other file."""

from tuner.html_report.page import comparison_html, report_html, write_report
from tuner.results.wording import REPORT

__all__ = ["REPORT", "comparison_html", "report_html", "write_report"]
