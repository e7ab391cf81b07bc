-- Takes a line, and streams that are removed, off the lists of their topology.
--
-- KEYS  1 streams  set
--       2 lines    hash
-- ARGV  1 named    as the caller has read it, or empty
--       2 until    ms of the server's clock
--       3 named, 4 removals  keys of strings (store/includes/owned.lua)
--       5 ttl      seconds for which `removals` is kept
--       6 line     its name, or empty
--       ... stream  its name
-- Returns 1. An error ACKER LATE, and nothing has changed, if a line or a stream was named since the caller
-- has read `named`, or after `until`: so a late copy of the call takes none that was named anew. It counts
-- as a removal of the topology: no late copy of an older call names them again. Bounded by the caller: at
-- most 16 streams a call.
--- @include "store/includes/late"
--- @include "store/includes/owned"
--- @include "store/includes/removed"
local refused = late(ARGV[3], ARGV[1], ARGV[2])
if refused then return refused end
note_named(ARGV[3])
note_removal(ARGV[4], ARGV[5])
redis.call('HDEL', KEYS[2], ARGV[6])
if #ARGV > 6 then redis.call('SREM', KEYS[1], unpack(ARGV, 7)) end
return 1
