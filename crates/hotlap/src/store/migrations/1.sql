-- Version 1. Times are in the units that the names end in; `*_json` columns hold what is read as a
-- whole or not at all; histograms are HdrHistogram's V2 form, deflated, and NULL when empty.

CREATE TABLE run (
    number        INTEGER PRIMARY KEY,
    began_ms      INTEGER NOT NULL,
    took_ms       INTEGER NOT NULL DEFAULT 0,
    state         TEXT    NOT NULL,
    command_json  TEXT    NOT NULL,
    hotlap        TEXT    NOT NULL,
    suite         TEXT,
    question      TEXT    NOT NULL,
    about         TEXT    NOT NULL,
    contract      TEXT    NOT NULL,
    seed          INTEGER NOT NULL,
    schedule_json TEXT    NOT NULL,
    host_json     TEXT    NOT NULL,
    loads_json    TEXT    NOT NULL
) STRICT;

CREATE TABLE server (
    run            INTEGER NOT NULL REFERENCES run (number) ON DELETE CASCADE,
    place          INTEGER NOT NULL,
    name           TEXT    NOT NULL,
    role           TEXT    NOT NULL,
    command        TEXT    NOT NULL,
    version        TEXT    NOT NULL,
    about          TEXT    NOT NULL,
    published_json TEXT,
    retired_json   TEXT,
    PRIMARY KEY (run, place)
) STRICT;

CREATE INDEX server_by_name ON server (name);

CREATE TABLE start (
    run          INTEGER NOT NULL REFERENCES run (number) ON DELETE CASCADE,
    server       INTEGER NOT NULL,
    heat         INTEGER NOT NULL,
    ready_ms     REAL    NOT NULL,
    passed       INTEGER NOT NULL,
    made         INTEGER NOT NULL,
    rss_bytes    INTEGER NOT NULL,
    notes_json   TEXT    NOT NULL,
    warmups_json TEXT    NOT NULL,
    PRIMARY KEY (run, server, heat)
) STRICT;

CREATE TABLE lap (
    run               INTEGER NOT NULL REFERENCES run (number) ON DELETE CASCADE,
    sequence          INTEGER NOT NULL,
    server            INTEGER NOT NULL,
    load              INTEGER NOT NULL,
    heat              INTEGER NOT NULL,
    block             INTEGER NOT NULL,
    place             INTEGER NOT NULL,
    rate              REAL,
    at_ms             INTEGER NOT NULL,
    window_ns         INTEGER NOT NULL,
    answers           INTEGER NOT NULL,
    errors            INTEGER NOT NULL,
    due               INTEGER NOT NULL,
    in_flight         INTEGER NOT NULL,
    connections_asked INTEGER NOT NULL,
    connections_up    INTEGER NOT NULL,
    connections_again INTEGER NOT NULL,
    received_bytes    INTEGER NOT NULL,
    sent_bytes        INTEGER NOT NULL,
    service           BLOB,
    response          BLOB,
    lag               BLOB,
    connect           BLOB,
    backend           TEXT    NOT NULL,
    generator_cpu_ns  INTEGER NOT NULL,
    generator_busy    REAL    NOT NULL,
    cpu_ns            INTEGER,
    failures_json     TEXT    NOT NULL,
    statuses_json     TEXT    NOT NULL,
    series_json       TEXT    NOT NULL,
    usage_json        TEXT,
    failed_json       TEXT    NOT NULL,
    PRIMARY KEY (run, sequence)
) STRICT;
