-- Who is told of studies by HTTPS. A secret signs what is sent, so that it can't be a hash: this file is its user's alone.

CREATE TABLE webhooks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id INTEGER NOT NULL REFERENCES users (id),
    url TEXT NOT NULL,
    events TEXT NOT NULL,
    everybodys INTEGER NOT NULL DEFAULT 0,  -- of all users' studies, for admins
    secret TEXT NOT NULL,
    created REAL NOT NULL
);
CREATE INDEX webhooks_by_user ON webhooks (user_id);

-- What is sent, written in the transaction of what it tells; `body` stays the same however often it is tried.
CREATE TABLE deliveries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    webhook INTEGER NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    event TEXT NOT NULL,
    study INTEGER,
    body TEXT NOT NULL,
    created REAL NOT NULL,
    state TEXT NOT NULL DEFAULT 'waiting',
    tries INTEGER NOT NULL DEFAULT 0,
    next_try REAL NOT NULL,
    tried REAL,
    status INTEGER,          -- of the newest answer
    problem TEXT
);
CREATE INDEX deliveries_by_webhook ON deliveries (webhook, id);
CREATE INDEX deliveries_to_try ON deliveries (next_try) WHERE state = 'waiting';

-- The best value of each study that was told, so that a server that starts anew doesn't tell it again.
CREATE TABLE told_best (
    study INTEGER PRIMARY KEY REFERENCES studies (id),
    value REAL NOT NULL
);
