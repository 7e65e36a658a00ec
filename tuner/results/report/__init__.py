"""`report.html`: a run as one page that needs nothing but itself."""

from tuner.results.report.page import REPORT, report_html, write_report

__all__ = ["REPORT", "report_html", "write_report"]
