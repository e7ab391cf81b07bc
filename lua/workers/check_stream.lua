-- Checks that a stream is unchanged since it was read: the subscriptions of its segments, and its rows'
-- schema.
--
-- KEYS  1 subscriptions  hash (streams/includes/streams.lua)
--       2 schema         string
-- ARGV  1 slots   slots of staged segments, as "0,2": of the present subscriptions, or of the next one
--       2 gather  the way it gathers; or empty
--       3 fair    the column of fair reading; or empty
--       4 schema  its SHA-1; or empty if there is none
-- Returns 1, or 0.
--- @chained reply == 1
local slots, following, gather, fair = unpack(redis.call('HMGET', KEYS[1], 'slots', 'next', 'gather', 'fair'))
local stored = redis.call('GET', KEYS[2])
if not slots or slots == '' then slots = following or '' end
local same = slots == ARGV[1] and (gather or '') == ARGV[2] and (fair or '') == ARGV[3]
return same and (stored and redis.sha1hex(stored) or '') == ARGV[4] and 1 or 0
