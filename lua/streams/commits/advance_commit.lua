-- Moves a commit on, if it is still what the caller thinks.
--
-- KEYS  1 commits   hash (lua/streams/commits/begin_commit.lua)
-- ARGV  1 number
--       2 what      what the caller knows as stored
--       3 from      state it must be in
--       4 to        held: all that it needs is kept, and from now on it is final; tracked: its roots are;
--                   done; or empty: forget it, so that another can be stored (what it needed was gone)
--       5 of        of which batch it is, kept with done; or empty
--       6 trail     token and notes of the trail that it must have (note_trail.lua); or empty
-- Returns 1, or 0 where it is in another state, is to do something else, or has not that trail.
--- @chained reply == 1
local n = ARGV[1]
local state, stored = unpack(redis.call('HMGET', KEYS[1], n .. ':state', n .. ':what'))
if state ~= ARGV[3] or stored ~= ARGV[2] then return 0 end
local token, noted = string.match(ARGV[6], '^(%S+) (%d+)$')
if token and redis.call('HGET', KEYS[1], n .. ':trail:' .. token) ~= noted then return 0 end
if ARGV[4] == '' then
  redis.call('HDEL', KEYS[1], n .. ':state', n .. ':what')
elseif ARGV[4] == 'done' then
  redis.call('HSET', KEYS[1], n .. ':state', 'done', n .. ':what',
    ARGV[5] == '' and redis.sha1hex(stored) or redis.sha1hex(stored) .. ' ' .. ARGV[5])
else
  redis.call('HSET', KEYS[1], n .. ':state', ARGV[4])
end
return 1
