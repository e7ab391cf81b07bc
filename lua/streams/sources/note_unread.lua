-- Notes why the source of a spout cannot be read again, or drops that note. If the spout is gone, it writes
-- nothing, because nobody would remove the note.
--
-- KEYS  1 config  of the topology
--       2 health  hash (acker/inspect/topology/health.py)
-- ARGV  1 spout
--       2 at      time, in ms
--       3 reason  "" drops the note
-- Returns 1, or 0 if the spout is gone.
local field = 'unread:' .. ARGV[1]
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[2], field)
elseif redis.call('HEXISTS', KEYS[1], 'spout:' .. ARGV[1]) == 0 then
  return 0
else
  redis.call('HSET', KEYS[2], field, ARGV[2] .. ' ' .. ARGV[3])
end
return 1
