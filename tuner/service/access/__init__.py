"""Who may use the service: users, their passwords, tokens and sessions, and how often somebody may try.

access        what the routes call: `Access`; viewers of one run, who come by a link that works once: `Guests`
accounts      users' rows, and their passwords as argon2id
tokens        what programs show, stored as hashes, limited by role and time
sessions      what browsers show, the same way
invitations   links that work once: for the first admin, and for everybody who is added
credentials   secrets of 256 bits, and their hashes
limits        requests a second, failed logins a minute, open streams
"""

from tuner.service.access.access import Access, Caller, Guests

__all__ = ["Access", "Caller", "Guests"]
