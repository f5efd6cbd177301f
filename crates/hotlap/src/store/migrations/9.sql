-- Version 9: what each of several generators contributed to a lap; NULL if there was one.

ALTER TABLE lap ADD COLUMN generators_json TEXT;
