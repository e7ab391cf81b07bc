-- Stages the rows of a segment, or of roots.
--
-- KEYS  1 payload  string (lua/streams/log/note_segments.lua, lua/streams/sources/keep_rows.lua)
-- ARGV  1 ttl      seconds after which uncommitted rows are gone
--       2 rows     the payload
-- Returns 1, or 0 if it is staged already.
--- @chained true
return redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[1], 'NX') and 1 or 0
