-- Puts away records that cannot be read, as a newer version or a hand may leave them: for people to look
-- at,
-- while all else goes on. Of their trees the spout's own timer tells.
-- @needs shard, id_pieces
--
-- A quarantine is a hash: what the record was of -> the record. It holds the first 1,000 of a shard, and of
-- each the first 16 KiB; all are counted. What it was of is a slab, message_ids:<slab>,
-- segment:<stream>:<token, or id of the entry>, rows:<spout>:<token>, or outcomes:<spout>:<id of the
-- entry>,
-- whose fields and values are lines then.
local QUARANTINED, QUARANTINE_BYTES = 1000, 16384
local quarantine = {}

function quarantine.put(key, name, record)
  if call('HLEN', key) < QUARANTINED then call('HSET', key, name, sub(record, 1, QUARANTINE_BYTES)) end
  counters.add('unreadable', 1)
end

function quarantine.put_entry(key, stream, id, fields)
  local spout = string.match(stream, '[^:]+$') or ''
  quarantine.put(key, 'outcomes:' .. spout .. ':' .. id, table.concat(fields, '\n'))
end

-- How many trees a slab has whose header cannot be read, as its message ids tell: there are that many
-- lengths, and the bytes of all, and nothing else. nil where they do not tell. At most 4,096 steps.
local function count_in(packed)
  local bytes = 0
  for n = 1, math.min(SLAB_TREES, floor(#packed / 2)) do
    bytes = bytes + unpack_from('<I2', packed, 2 * n - 1)
    if 2 * n + bytes == #packed then return n end
  end
end

function quarantine.count(slab)
  local packed, full = call('HGET', MESSAGE_IDS, slab), 0
  if packed ~= '' then return count_in(packed or '') end
  while full < id_pieces.MOST - 1 and call('HEXISTS', MESSAGE_IDS, id_pieces.field(slab, full + 1)) == 1 do
    full = full + 1
  end
  local rest = count_in(call('HGET', MESSAGE_IDS, id_pieces.field(slab, full)) or '')
  return rest and id_pieces.TREES * full + rest
end
