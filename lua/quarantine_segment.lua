-- Puts away a segment, or kept rows, that cannot be read: once, however many read it, and however often.
--
-- KEYS  the shard's (includes/shard.lua), then quarantine (includes/quarantine.lua)
-- ARGV  1 spouts
--       2 name     segment:<stream>:<token>, or the id of its entry where that is all that can be read;
--                  rows:<spout>:<token>
--       3 record   what there is of it
-- Returns whether it is new. What a full quarantine has no room for is counted each time.
--- @include "shard"
--- @include "id_pieces"
--- @include "quarantine"
if call('HEXISTS', KEYS[OWN], ARGV[2]) == 1 then return 0 end
quarantine.put(KEYS[OWN], ARGV[2], ARGV[3])
counters.flush()
return 1
