-- Opens a topology: stores its configuration unless there is one.
--
-- KEYS  1 config    hash
-- ARGV  1 removals  as the caller has read it, or empty
--       2 until     ms of the server's clock
--       3 removals  key of a string: when the topology was removed last. It and the next ones lie beside the
--                   configuration, and are no KEYS: while their slot moves to another node of a cluster, a
--                   call of several keys waits
--       4 streams, 5 lines, 6 steps, 7 step_numbers  keys of the topology: they have a time to live
--                   without it
--       ... field, value  the configuration to store if there is none
-- Returns the stored configuration as field, value, field, value ... An error ACKER LATE if there is none,
-- and the topology was removed since the caller has read `removals`, or after `until`: a late copy of the
-- call makes nothing anew.
--- @include "store/includes/late"
local call = redis.call
if call('HEXISTS', KEYS[1], 'schema') == 0 then
  local refused = late(ARGV[3], ARGV[1], ARGV[2])
  if refused then return refused end
  call('HSET', KEYS[1], unpack(ARGV, 8))
  for k = 4, 7 do call('PERSIST', ARGV[k]) end
end
return call('HGETALL', KEYS[1])
