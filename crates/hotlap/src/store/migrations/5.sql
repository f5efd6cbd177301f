-- Version 5: ages of requests that were unanswered when a lap ended.

ALTER TABLE lap ADD COLUMN service_censored_json TEXT NOT NULL DEFAULT '{}';
ALTER TABLE lap ADD COLUMN response_censored_json TEXT NOT NULL DEFAULT '{}';
