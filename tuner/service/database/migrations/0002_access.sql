-- Who may use the service. Of passwords and secrets only hashes are here.

CREATE TABLE passwords (
    user_id INTEGER PRIMARY KEY REFERENCES users (id),
    hash TEXT NOT NULL,
    changed REAL NOT NULL
);

CREATE TABLE tokens (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id INTEGER NOT NULL REFERENCES users (id),
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE,
    created REAL NOT NULL,
    expires REAL NOT NULL,
    used REAL
);
CREATE INDEX tokens_by_user ON tokens (user_id);

CREATE TABLE sessions (
    hash TEXT PRIMARY KEY,
    user_id INTEGER NOT NULL REFERENCES users (id),
    created REAL NOT NULL,
    expires REAL NOT NULL
);
CREATE INDEX sessions_by_user ON sessions (user_id);

-- Links that work once; user_id 0 makes the first admin.
CREATE TABLE invitations (
    hash TEXT PRIMARY KEY,
    user_id INTEGER NOT NULL,
    expires REAL NOT NULL
);
