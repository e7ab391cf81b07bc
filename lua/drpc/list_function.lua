-- Puts a function on the list of functions, or takes it off.
--
-- KEYS  1 functions  hash: name -> its description
-- ARGV  1 name
--       2 description  to put on the list, unless there is one of that name; empty: takes it off
--       3 seen   `listed` as the caller has read it, or empty
--       4 until  ms of the server's clock
--       5 ttl    seconds for which `listed` is kept
--       6 listed  key of a string: when this was done last for the function. It lies beside the list, and is
--                 no KEYS: while their slot moves to another node of a cluster, a call of several keys waits
-- Returns 1. An error ACKER LATE, and nothing has changed, if this was done for the function since the caller
-- has read `listed`, or after `until`: so a late copy of the call changes nothing.
--- @include "store/includes/late"
local call = redis.call
local refused = late(ARGV[6], ARGV[3], ARGV[4])
if refused then return refused end
if ARGV[2] == '' then call('HDEL', KEYS[1], ARGV[1]) else call('HSETNX', KEYS[1], ARGV[1], ARGV[2]) end
local instant = call('TIME')
call('SET', ARGV[6], instant[1] .. '-' .. instant[2], 'EX', ARGV[5])
return 1
