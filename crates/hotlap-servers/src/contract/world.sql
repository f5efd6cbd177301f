-- The tables of the contracts db, queries, updates, fortunes and cached. Only rows of world beyond
-- the first 10,000 are changed.
CREATE TABLE world (id integer PRIMARY KEY, number integer NOT NULL);
INSERT INTO world SELECT id, id * 7919 % 10000 + 1 FROM generate_series(1, 20000) id;

CREATE TABLE fortune (id integer PRIMARY KEY, message text NOT NULL);
INSERT INTO fortune VALUES
    (1, 'A cache is a promise that nobody signed.'),
    (2, 'The benchmark was right. The question was wrong.'),
    (3, 'Two clocks never agree; one clock is never wrong.'),
    (4, 'Any index is free until the first write.'),
    (5, '"It works here" & other famous last words'),
    (6, 'Measure twice, deploy once.'),
    (7, 'フレームワークの速さは、使う人の数ではない。'),
    (8, 'He who retries without a limit has no friends downstream.'),
    (9, '<script>alert("This must be escaped.");</script>'),
    (10, 'Latency adds up, throughput does not.'),
    (11, 'No row returned is a row, too.'),
    (12, 'Yesterday''s peak is tomorrow''s average.');
