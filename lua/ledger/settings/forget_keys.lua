-- Removes keys of a stream, or of what a spout keeps, whose names others may use again: a part of them, or
-- the last ones.
--
-- KEYS  1 removals  string: how often that was removed lately
--       ... key     that goes
-- ARGV  1 found     `removals` as the begin of this removal has left it
--       2 ttl       seconds for which `removals` is kept
--       3 last      1: these keys end the removal
-- Returns 1, or 0 if another removal has begun or ended since, or the stream is used again (set_version.lua):
-- nothing has changed. So no late copy of the call takes anything from what was made anew.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('UNLINK', unpack(KEYS, 2))
if ARGV[3] == '0' then return 1 end
redis.call('INCRBY', KEYS[1], 1)
redis.call('EXPIRE', KEYS[1], ARGV[2])
return 1
