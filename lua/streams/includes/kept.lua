-- What the scripts on a spout's kept rows share: the rows of roots stay until each tree has been settled.
--
-- KEYS  1 kept     hash  token -> record of the roots (acker/streams/sources/roots.py)
--       2 slabs    hash  slab -> its number among the slabs of its token (u32), its trees (u16), token
--       3 masks    hash  slab -> one byte for each tree, 1 where it is settled, once some are
--       4 left     hash  token -> how many of its slabs are not settled
--       5 counts   hash  pending: trees not settled; acked, replayed, dead: trees settled so;
--                          told: somebody takes the outcomes, so nobody else settles them
--       6 times    sorted set  token -> when it was kept, or last looked after (ms)
local call, sub, rep, find = redis.call, string.sub, string.rep, string.find
local KEPT, SLABS, MASKS, LEFT, COUNTS, TIMES = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local OWN = 7

-- Raises a count by so many and returns it; one that cannot be read begins anew, so no step ends half done.
local function raise(hash, name, by)
  local raised = redis.pcall('HINCRBY', hash, name, by)
  if type(raised) ~= 'table' then return raised end
  call('HSET', hash, name, by)
  return by
end

-- Settles trees of a slab: those at `indexes` (u16 each, ascending), or all where that is empty. Returns
-- how many were not settled before. When the last tree of a token is settled, `rows` goes.
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
  local token = sub(place, 7)
  call('HDEL', MASKS, slab)
  call('HDEL', SLABS, slab)
  if raise(LEFT, token, -1) == 0 then
    call('HDEL', LEFT, token)
    call('HDEL', KEPT, token)
    call('ZREM', TIMES, token)
    call('UNLINK', rows)
  end
  return n
end
