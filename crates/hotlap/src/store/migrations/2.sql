-- Version 2: suites. Servers have a part in a question; some that a source published are absent.

ALTER TABLE run ADD COLUMN absent_json TEXT NOT NULL DEFAULT '[]';
ALTER TABLE server ADD COLUMN part_json TEXT NOT NULL DEFAULT '{}';
