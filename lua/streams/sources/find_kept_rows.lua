#!lua flags=no-writes
-- Finds the kept rows of slabs: the place of each slab, and the records of the roots that these places name.
--
-- KEYS  1 kept   hash (streams/includes/kept.lua)
--       2 slabs  hash
-- ARGV  ... slab  8 bytes each
-- Returns the place of each slab, false if it has none; then a list of id and record of each of their
-- roots.
-- Bounded by the caller: at most 500 slabs a call.
local places, records, seen = redis.call('HMGET', KEYS[2], unpack(ARGV)), {}, {}
for _, place in ipairs(places) do
  local id = place and string.sub(place, 7)
  if id and id ~= '' and not seen[id] then
    seen[id] = true
    local record = redis.call('HGET', KEYS[1], id)
    if record then
      records[#records + 1] = id
      records[#records + 1] = record
    end
  end
end
return {places, records}
