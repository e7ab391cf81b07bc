-- Shared code of the scripts on a spout's kept rows: the rows of roots stay until each tree was settled.
--
-- KEYS  1 kept     hash  id -> record of the roots (acker/streams/sources/roots.py)
--       2 slabs    hash  slab -> its number among the slabs of its id (u32), its trees (u16), id
--       3 masks    hash  slab -> one byte for each tree, 1 if it is settled; missing if none is
--       4 left     hash  id -> number of its unsettled slabs
--       5 counts   hash  pending: trees not settled; acked, replayed, dead: trees settled so;
--                          claimed: a process takes the outcomes, so no other settles them
--       6 times    sorted set  id -> the time when it was kept or last checked (ms)
local call, sub, rep, find = redis.call, string.sub, string.rep, string.find
local KEPT, SLABS, MASKS, LEFT, COUNTS, TIMES = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local OWN = 7

-- Raises a count by so many and returns it; an unreadable count begins anew, so no step ends half done.
local function raise(hash, name, by)
  local raised = redis.pcall('HINCRBY', hash, name, by)
  if type(raised) ~= 'table' then return raised end
  call('HSET', hash, name, by)
  return by
end

-- Settles the trees of a slab at `indexes` (u16 each, ascending), or all if that is empty. Returns the number
-- of newly settled trees. When the last tree of an id is settled, `rows` goes.
-- Costs one step for each index: at most 4,096.
local function settle(slab, indexes, rows)
  local place = call('HGET', SLABS, slab)
  if not place or #place < 7 then return 0 end -- settled before, or not to be read
  local _, count = struct.unpack('<I4I2', place)
  local known, n, mask = call('HGET', MASKS, slab), 0, ''
  if indexes == '' then
    local _, settled = string.gsub(known or '', '\1', '')
    n = count - settled
  else
    mask = known or rep('\0', count)
    local pieces, at = {}, 1
    for i = 1, #indexes, 2 do
      local index = struct.unpack('<I2', indexes, i)
      if index < count and sub(mask, index + 1, index + 1) == '\0' then
        n = n + 1
        pieces[#pieces + 1] = sub(mask, at, index) .. '\1'
        at = index + 2
      end
    end
    mask = table.concat(pieces) .. sub(mask, at)
  end
  if n == 0 then return 0 end
  raise(COUNTS, 'pending', -n)
  if find(mask, '\0', 1, true) then
    call('HSET', MASKS, slab, mask)
    return n
  end
  local id = sub(place, 7)
  call('HDEL', MASKS, slab)
  call('HDEL', SLABS, slab)
  if raise(LEFT, id, -1) == 0 then
    call('HDEL', LEFT, id)
    call('HDEL', KEPT, id)
    call('ZREM', TIMES, id)
    call('UNLINK', rows)
  end
  return n
end
