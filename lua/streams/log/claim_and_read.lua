-- Gives a reader of a subscription its next segments, as claim_segments.lua does, and reads their data for a
-- worker, on a store that is one server: the data is in many slots.
--
-- KEYS  1 entries, 2 subscriptions, 3 returned, 4 delivered, 5 readers, 6 fences  of claim_segments.lua
-- ARGV  1 slot, 2 reader, 3 offset, 4 rows, 5 bytes, 6 segments, 7 end, 8 ttl, 9 shown, 10 name,
--       11 version  as there
--       12 payload  the prefix of the keys of payloads
--       13 before, 14 behind  the parts of the keys of shards around the shard's number
-- Returns {the reply of claim_segments.lua, the server's time (as TIME gives it), then the data of each of
-- its segments}; {the reply of claim_segments.lua} if the data is large, or cannot be read: the caller reads
-- it then. Of a segment: its payload, false if it is gone; then for each of its shards the staged data of the
-- slot {state, layout, slabs, words} (stage.lua), and the header and the ack vector of each of these slabs.
-- Bounded: 64 KiB of payloads, and 96 shards and slabs of segments.
--- @script "claim_segments"
local MOST_BYTES, MOST_LOOKS = 65536, 96
local claimed = claim_segments({unpack(KEYS, 1, 6)}, {unpack(ARGV, 1, 11)})
if claimed.err then return claimed end

-- The header and the ack vector of each of some slabs.
local function trees_of(shard, slabs)
  local trees = {}
  for at = 1, #slabs - 7, 8 do
    local slab = string.sub(slabs, at, at + 7)
    trees[#trees + 1] = redis.call('HGET', shard .. 'slabs', slab)
    if string.byte(slab) >= 128 then -- a slab of one
      trees[#trees + 1] = redis.call('HGET', shard .. 'ones', slab)
    else
      trees[#trees + 1] = redis.call('GET', shard .. 'ack:' .. slab)
    end
  end
  return trees
end

local bytes, looks = 0, 0

-- The data of a segment; nil if it is large.
local function look_at(record)
  local segment = cjson.decode(record)
  local segment_id, shards = segment[1], segment[5]
  bytes = bytes + segment[4]
  if bytes > MOST_BYTES then return nil end
  local found = {redis.call('GET', ARGV[12] .. segment_id)}
  for _, number in ipairs(shards) do
    local shard = string.format('%s%.0f%s', ARGV[13], number, ARGV[14])
    local staged = redis.call('HMGET', shard .. 'staged:' .. segment_id .. ':' .. ARGV[1],
      'state', 'layout', 'slabs', 'words')
    local slabs = staged[3] or ''
    looks = looks + 1 + #slabs / 8
    if looks > MOST_LOOKS then return nil end
    found[#found + 1], found[#found + 2] = staged, trees_of(shard, slabs)
  end
  return found
end

local found = {claimed, redis.call('TIME')}
for k = 5, #claimed, 4 do
  local readable, one = pcall(look_at, claimed[k])
  if not readable or not one then return {claimed} end
  found[#found + 1] = one
end
return #found > 2 and found or {claimed}
