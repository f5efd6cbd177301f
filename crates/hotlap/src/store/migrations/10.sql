-- Version 10: laps that held the rate that a search found.

ALTER TABLE lap ADD COLUMN is_held INTEGER NOT NULL DEFAULT 0;
