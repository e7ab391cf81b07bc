-- Puts away what a spout could not read: entries of its outcomes, message ids of slabs.
--
-- KEYS  the shard's (includes/shard.lua), then the outcomes stream of the spout, then quarantine
--       (includes/quarantine.lua)
-- ARGV  1 spouts
--       2 n       how many entries are named
--       3 ...     n ids of stream entries, then slabs
-- Returns how many were there. What was put away before is passed over.
-- Bounded by the caller: at most 100 a call.
--- @include "shard"
--- @include "id_pieces"
--- @include "drop_id_pieces"
--- @include "quarantine"
local stream, into, entries = KEYS[OWN], KEYS[OWN + 1], tonumber(ARGV[2])
local n = 0
for i = 3, 2 + entries do
  local found = call('XRANGE', stream, ARGV[i], ARGV[i])[1]
  if found then
    quarantine.put_entry(into, stream, ARGV[i], found[2])
    call('XDEL', stream, ARGV[i])
    n = n + 1
  end
end
for i = 3 + entries, #ARGV do
  local packed = call('HGET', MESSAGE_IDS, ARGV[i])
  if packed then
    quarantine.put(into, 'message_ids:' .. ARGV[i], packed)
    drop_id_pieces(ARGV[i], SLAB_TREES)
    call('HDEL', MESSAGE_IDS, ARGV[i])
    n = n + 1
  end
end
counters.flush()
return n
