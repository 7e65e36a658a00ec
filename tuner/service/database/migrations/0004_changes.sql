-- The state that a study was in after a change: ids of `GET events` are those of the audit, which outlast a server.

ALTER TABLE audit ADD COLUMN state TEXT;

-- What was foretold of the end of studies that run, and of those that ended by themselves whether it held.
CREATE TABLE foretold (
    study INTEGER NOT NULL REFERENCES studies (id),
    time REAL NOT NULL,
    low REAL NOT NULL,       -- the end that was foretold lies between
    high REAL NOT NULL,
    PRIMARY KEY (study, time)
);
CREATE TABLE foretellings (
    study INTEGER PRIMARY KEY REFERENCES studies (id),
    ended REAL NOT NULL,
    held INTEGER NOT NULL
);
