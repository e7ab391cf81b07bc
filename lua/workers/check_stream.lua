-- Tells whether a stream is still as it was looked at: for whom its segments are staged, and of what rows.
--
-- KEYS  1 subscriptions  hash (streams/includes/streams.lua)
--       2 schema         string
-- ARGV  1 slots   that segments are staged for, as "0,2": of the subscriptions there are, or of the next one
--       2 gather  how it gathers; or empty
--       3 fair    the column by which it is read fairly; or empty
--       4 schema  its SHA-1; or empty where there is none
-- Returns 1, or 0.
--- @chained reply == 1
local slots, following, gather, fair = unpack(redis.call('HMGET', KEYS[1], 'slots', 'next', 'gather', 'fair'))
local stored = redis.call('GET', KEYS[2])
if not slots or slots == '' then slots = following or '' end
local same = slots == ARGV[1] and (gather or '') == ARGV[2] and (fair or '') == ARGV[3]
return same and (stored and redis.sha1hex(stored) or '') == ARGV[4] and 1 or 0
