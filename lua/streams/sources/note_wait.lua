-- Notes among the facts of a topology's health what a spout waits for, or how far its dead letters were sent,
-- or drops that note. If the spout is gone, it writes nothing, because nobody would remove the note.
--
-- KEYS  1 config  of the topology
--       2 health  hash (acker/inspect/topology/health.py)
-- ARGV  1 kind    unread, unsent or sent
--       2 spout
--       3 value   "" drops the note
-- Returns 1, or 0 if the spout is gone.
local field = ARGV[1] .. ':' .. ARGV[2]
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[2], field)
elseif redis.call('HEXISTS', KEYS[1], 'spout:' .. ARGV[2]) == 0 then
  return 0
else
  redis.call('HSET', KEYS[2], field, ARGV[3])
end
return 1
