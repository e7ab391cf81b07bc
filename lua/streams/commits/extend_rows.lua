-- Gives the rows of staged segments another time to live, except published ones: their readers have them.
--
-- KEYS  ... payload, unacked  of each segment (lua/streams/log/note_segments.lua)
-- ARGV  1 ttl   seconds; 0 drops them
-- Returns for each segment 1, or 0 if its rows are gone, or -1 if it was published.
-- Bounded by the caller: at most 500 segments a call.
--- @chained only(reply, 1, 1, -1)
local reply = {}
for k = 1, #KEYS, 2 do
  local published = redis.call('EXISTS', KEYS[k + 1]) == 1
  reply[#reply + 1] = published and -1 or redis.call('EXPIRE', KEYS[k], ARGV[1])
end
return reply
