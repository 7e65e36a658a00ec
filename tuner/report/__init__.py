"""`report.html`: a run, or several compared, as one page that needs nothing but itself."""

from tuner.report.comparison_page import comparison_html
from tuner.report.page import REPORT, report_html, write_report

__all__ = ["REPORT", "comparison_html", "report_html", "write_report"]
