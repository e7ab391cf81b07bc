-- Puts a topology on the list of topologies, or takes it off.
--
-- KEYS  1 topologies  set
-- ARGV  1 name
--       2 seen   `listed` as the caller has read it, or empty
--       3 until  ms of the server's clock
--       4 on     1: on the list; 0: off it
--       5 ttl    seconds for which `listed` is kept
--       6 listed  key of a string: when this was done last for the topology. It lies beside the list, and is
--                 no KEYS: while their slot moves to another node of a cluster, a call of several keys waits
-- Returns 1. An error ACKER LATE, and nothing has changed, if this was done for the topology since the caller
-- has read `listed`, or after `until`: so a late copy of the call changes nothing.
--- @include "store/includes/late"
local call = redis.call
local refused = late(ARGV[6], ARGV[2], ARGV[3])
if refused then return refused end
if ARGV[4] == '1' then call('SADD', KEYS[1], ARGV[1]) else call('SREM', KEYS[1], ARGV[1]) end
local instant = call('TIME')
call('SET', ARGV[6], instant[1] .. '-' .. instant[2], 'EX', ARGV[5])
return 1
