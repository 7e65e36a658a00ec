"""A study file is executed in a process with limits and never in the server: what it declares comes back as plain data.

child    the process: loads the study as `tuner check` does, and tells the facts
parent   starts it, watches time and memory, and ends it as a whole
facts    what it tells, and what follows for devices
queue    checks the studies that were submitted, one after the other
"""

from tuner.service.checking.parent import check
from tuner.service.checking.study_facts import Facts, demand_of

__all__ = ["Facts", "check", "demand_of"]
