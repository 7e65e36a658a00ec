"""`report.html`: a run, or several compared, as one page that needs nothing but itself."""

from tuner.results.report.comparison_page import comparison_html
from tuner.results.report.page import REPORT, report_html, write_report

__all__ = ["REPORT", "comparison_html", "report_html", "write_report"]
