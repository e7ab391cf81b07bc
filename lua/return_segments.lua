-- Takes back segments that a reader has taken and did not ack, so that others can have them.
--
-- KEYS  1 taken      stream (lua/claim_segments.lua)
--       2 returned   stream
--       3 readers    hash (lua/claim_segments.lua)
--       then for each segment: owed (lua/settle_segments.lua)
-- ARGV  1 slot
--       2 reader
--       3 dead       1: only where Spark has not logged a batch of the reader
--       4 ...        for each segment: its number among the taken
-- Returns how many there were to take back. A reader that has none any more is forgotten.
-- Bounded by the caller: at most 500 a call.
local back = 0
if ARGV[3] == '1' and string.sub(redis.call('HGET', KEYS[3], ARGV[2]) or '1', 1, 1) == '1' then return 0 end
for k = 4, #KEYS do
  local id = ARGV[k] .. '-0'
  local one = redis.call('XRANGE', KEYS[1], id, id)[1]
  if one then
    redis.call('XDEL', KEYS[1], id)
    if redis.call('HGET', KEYS[k], ARGV[1]) == '1' then
      redis.call('XADD', KEYS[2], '*', unpack(one[2]))
      back = back + 1
    end
  end
end
if redis.call('XLEN', KEYS[1]) == 0 then
  redis.call('UNLINK', KEYS[1])
  redis.call('HDEL', KEYS[3], ARGV[2])
end
return back
