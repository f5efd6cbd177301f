-- Version 3: runs are kept as baselines.

ALTER TABLE run ADD COLUMN baseline TEXT;
