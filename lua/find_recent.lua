#!lua flags=no-writes
-- Looks for a tree among the latest that failed or expired, the latest first.
--
-- KEYS  1 recent  stream (includes/recent.lua)
-- ARGV  1 slab, 2 where to go on: "+", or "(" and the id of an entry, 3 how many entries, 4 index
-- Returns {where, entry}: the entry as {id, fields} or false; where to go on, "" at the end.
-- Bounded by the caller: at most 100 entries a call, each of some 256 trees or one slab.
local call, find, unpack_from = redis.call, string.find, struct.unpack
local slab, most, index = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local entries = call('XREVRANGE', KEYS[1], ARGV[2], '-', 'COUNT', most)

local function has(trees)
  local at = 1
  while at <= #trees do
    local n = unpack_from('<I2', trees, at + 14)
    local ids = at + 16 + 2 * n
    if string.sub(trees, at, at + 7) == slab then
      if n == 0 then return true end
      for i = 0, n - 1 do
        if unpack_from('<I2', trees, at + 16 + 2 * i) == index then return true end
      end
    end
    at = ids + 6 + unpack_from('<I4', trees, ids + 2)
  end
  return false
end

for e = 1, #entries do
  local fields = entries[e][2]
  local trees = fields[#fields]
  -- The search for the name is the server's own loop; only where it is somewhere are the trees walked over.
  -- One that can not be read has none.
  if find(trees, slab, 1, true) then
    local read, there = pcall(has, trees)
    if read and there then return {'', entries[e]} end
  end
end
if #entries < most then return {'', false} end
return {'(' .. entries[#entries][1], false}
