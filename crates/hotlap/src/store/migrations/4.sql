-- Version 4: what became of servers under stress.

CREATE TABLE stress (
    run          INTEGER NOT NULL REFERENCES run (number) ON DELETE CASCADE,
    sequence     INTEGER NOT NULL,
    subject_json TEXT    NOT NULL,
    PRIMARY KEY (run, sequence)
) STRICT;
