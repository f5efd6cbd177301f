-- Version 8: laps that explain where a difference in cost comes from. What an instrument saw is
-- JSON, compressed by zlib.

CREATE TABLE explain_lap (
    run             INTEGER NOT NULL REFERENCES run (number) ON DELETE CASCADE,
    sequence        INTEGER NOT NULL,
    server          INTEGER NOT NULL,
    load            INTEGER NOT NULL,
    restart         INTEGER NOT NULL,
    round           INTEGER NOT NULL,
    place           INTEGER NOT NULL,
    at_ms           INTEGER NOT NULL,
    requests        INTEGER NOT NULL,
    cpu_ns          INTEGER,
    answers         INTEGER NOT NULL,
    sent_bytes      INTEGER NOT NULL,
    received_bytes  INTEGER NOT NULL,
    violations_json TEXT    NOT NULL,
    observation     BLOB,
    PRIMARY KEY (run, sequence)
) STRICT;
