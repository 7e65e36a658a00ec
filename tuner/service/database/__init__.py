"""SQLite in one file: migrations, one writer at a time, and the tables' rows as dataclasses.

connection   the file: opening, migrating, transactions, backup
studies      the queue's rows; each change names the state that it leaves
usage        who held how many devices for how long
audit        who changed what
keys         submissions that are sent again
"""

from tuner.service.database.connection import Database

__all__ = ["Database"]
