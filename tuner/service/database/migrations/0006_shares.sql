-- Caps of users, which admins set: devices of a kind at once, and device-hours in seven days. NULL: none.

ALTER TABLE users ADD COLUMN most_devices INTEGER;
ALTER TABLE users ADD COLUMN most_hours REAL;

-- Whether a study keeps the devices with which it started until it ends.
ALTER TABLE studies ADD COLUMN fixed INTEGER NOT NULL DEFAULT 0;
UPDATE studies SET fixed = 1
WHERE kind = 'external' OR wanted IS NOT NULL OR (kind = 'gpu' AND json_extract(facts, '$.packed'));
