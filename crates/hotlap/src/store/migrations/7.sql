-- Version 7: the outcome of each request of a lap whose load sends several.

CREATE TABLE lap_request (
    run           INTEGER NOT NULL REFERENCES run (number) ON DELETE CASCADE,
    lap           INTEGER NOT NULL,
    place         INTEGER NOT NULL,
    answers       INTEGER NOT NULL,
    errors        INTEGER NOT NULL,
    latency       BLOB,
    censored_json TEXT    NOT NULL,
    PRIMARY KEY (run, lap, place)
) STRICT;
