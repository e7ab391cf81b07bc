-- Opens a topology: stores its configuration unless there is one.
--
-- KEYS  1 config    hash
--       2 removals  string: how often the topology was removed lately
--       3 streams, 4 lines, 5 steps, 6 step_numbers  of the topology: they have a time to live without it
-- ARGV  1 removals  as the caller has read it, or empty
--       2 until     ms of the server's clock
--       ... field, value  the configuration to store if there is none
-- Returns the stored configuration as field, value, field, value ... An error ACKER LATE if there is none,
-- and the topology was removed since the caller has read `removals`, or after `until`: a late copy of the
-- call makes nothing anew.
--- @include "store/includes/late"
local call = redis.call
if call('HEXISTS', KEYS[1], 'schema') == 0 then
  local refused = late(KEYS[2], ARGV[1], ARGV[2])
  if refused then return refused end
  call('HSET', KEYS[1], unpack(ARGV, 3))
  for k = 3, 6 do call('PERSIST', KEYS[k]) end
end
return call('HGETALL', KEYS[1])
