-- Times are seconds since 1970, UTC. Lists and mappings are JSON.

CREATE TABLE users (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE COLLATE NOCASE,
    role TEXT NOT NULL,
    weight REAL NOT NULL DEFAULT 1.0 CHECK (weight > 0),
    created REAL NOT NULL,
    disabled INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE studies (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    user_id INTEGER NOT NULL,
    user TEXT NOT NULL,
    state TEXT NOT NULL,
    priority INTEGER NOT NULL DEFAULT 0,
    preemptible INTEGER NOT NULL DEFAULT 0,
    kind TEXT NOT NULL DEFAULT 'cpu',
    count INTEGER NOT NULL DEFAULT 1,
    least INTEGER NOT NULL DEFAULT 1,
    after TEXT NOT NULL DEFAULT '[]',
    submitted REAL NOT NULL,
    changed REAL NOT NULL,
    started REAL,
    ended REAL,
    run TEXT,
    reason TEXT,
    devices TEXT NOT NULL DEFAULT '[]',
    deaths INTEGER NOT NULL DEFAULT 0,
    options TEXT NOT NULL DEFAULT '{}',
    facts TEXT NOT NULL DEFAULT '{}',
    external INTEGER NOT NULL DEFAULT 0,
    limits TEXT NOT NULL DEFAULT '{}',
    not_before REAL NOT NULL DEFAULT 0,
    attempt INTEGER NOT NULL DEFAULT 0,
    main TEXT NOT NULL DEFAULT '',
    wanted INTEGER,          -- devices that were asked for; the check turns them into kind, count and least
    room_for INTEGER,
    progress TEXT NOT NULL DEFAULT '{}',
    deleted REAL
);
CREATE INDEX studies_by_state ON studies (state);
CREATE INDEX studies_by_user ON studies (user_id, state);
CREATE INDEX studies_with_devices ON studies (id) WHERE devices != '[]';

-- What a study's drivers held: a row for each driver and kind of device; `ended` is NULL while it holds them.
CREATE TABLE usage (
    study INTEGER NOT NULL REFERENCES studies (id),
    user_id INTEGER NOT NULL,
    kind TEXT NOT NULL,
    devices INTEGER NOT NULL,
    started REAL NOT NULL,
    ended REAL
);
CREATE INDEX usage_by_end ON usage (ended);
CREATE INDEX usage_by_study ON usage (study);

CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    time REAL NOT NULL,
    user_id INTEGER,         -- NULL: the service itself
    user TEXT NOT NULL,
    action TEXT NOT NULL,
    study INTEGER,
    detail TEXT NOT NULL DEFAULT '{}'
);
CREATE INDEX audit_by_study ON audit (study);

-- A submission that is sent again with its key is the same one.
CREATE TABLE idempotency_keys (
    user_id INTEGER NOT NULL,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    study INTEGER NOT NULL,
    time REAL NOT NULL,
    PRIMARY KEY (user_id, key)
);
