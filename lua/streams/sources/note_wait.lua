-- Notes among the facts of a topology's health what a spout waits for, or how far it has come, or drops that
-- note. If the topology is gone, it writes nothing, because nobody would remove the key.
--
-- KEYS  1 config  of the topology
--       2 health  hash (acker/inspect/topology/health.py)
-- ARGV  1 field   kind and spout: "unread:s"
--       2 value   "" drops the note
-- Returns 1, or 0 if the topology is gone.
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[2], ARGV[1])
else
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
end
return 1
