#!lua flags=no-writes
-- Searches for a tree among the latest failed or expired trees, the latest first.
--
-- KEYS  1 recent    stream (ledger/includes/recent.lua)
-- ARGV  1 slab
--       2 index
--       3 latest, 4 earliest  ids of entries to look at
-- Returns the entry as {id, fields}, or false.
-- Bounded by the caller: ids of at most 128 trees a call, so at most 128 entries; the earliest entry may have
-- further trees, some 256 or one slab.
local find, unpack_from = string.find, struct.unpack
local slab, index = ARGV[1], tonumber(ARGV[2])

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

for _, entry in ipairs(redis.call('XREVRANGE', KEYS[1], ARGV[3], ARGV[4])) do
  local fields = entry[2]
  local trees = fields[#fields]
  -- The server's own loop searches for the name; only if it is found are the trees walked over.
  -- An unreadable entry has no trees.
  if find(trees, slab, 1, true) then
    local read, there = pcall(has, trees)
    if read and there then return entry end
  end
end
return false
