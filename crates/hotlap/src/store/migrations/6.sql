-- Version 6: the names of today.

ALTER TABLE start RENAME COLUMN heat TO restart;
ALTER TABLE lap RENAME COLUMN heat TO restart;
ALTER TABLE lap RENAME COLUMN block TO round;
ALTER TABLE lap RENAME COLUMN failed_json TO violations_json;
ALTER TABLE server RENAME COLUMN retired_json TO failure_json;

UPDATE run SET
    question = replace(question, 'ladder', 'layers'),
    schedule_json = replace(
        replace(schedule_json, '"heats":', '"restarts":'), '"blocks":', '"rounds":');
UPDATE server SET
    role = CASE role WHEN 'contestant' THEN 'plain' WHEN 'double' THEN 'control' ELSE role END,
    failure_json = replace(
        replace(failure_json, '"last_words":', '"log_tail":'), '"cure":', '"remedy":');
UPDATE lap SET
    violations_json = replace(violations_json, '{"gate":', '{"check":'),
    series_json = replace(series_json, '{"answers":', '{"responses":'),
    failures_json = replace(failures_json, '"wrong-answer"', '"wrong-body"');
UPDATE stress SET subject_json = replace(
    replace(replace(subject_json, '"last_words":', '"log_tail":'), '"cure":', '"remedy":'),
    '"wrong-answer"', '"wrong-body"');
