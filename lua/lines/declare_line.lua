-- Declares a line: gives it its number at first, and compares its record later.
--
-- KEYS  1 lines  hash: name -> "<number> <record>"
-- ARGV  1 name
--       2 record  of the line (acker/lines/line.py)
--       3 most    most lines of a topology
--       4 config  key of the topology's configuration
--       5 removals, 6 seen, 7 named  (store/includes/owned.lua)
--       8 own     the line number of its gathering streams; 0 for none
--       ... number  the line number of another gathering stream
-- Returns the stored line; an error if there are so many already, and ACKER LATE if the topology was removed
-- since.
--- @include "store/includes/owned"
local refused = removed_since(ARGV[5], ARGV[6])
if refused then return refused end
note_named(ARGV[7])
local found = redis.call('HGET', KEYS[1], ARGV[1])
if found then return found end
local taken = {}
for place = 9, #ARGV do taken[ARGV[place]] = true end
for _, one in ipairs(redis.call('HVALS', KEYS[1])) do taken[string.match(one, '^%d+') or ''] = true end
for place = 0, tonumber(ARGV[3]) do
  local number = place == 0 and ARGV[8] or tostring(place)
  if number ~= '0' and not taken[number] then
    local stored = number .. ' ' .. ARGV[2]
    redis.call('HSET', KEYS[1], ARGV[1], stored)
    leave(KEYS[1], ARGV[4])
    return stored
  end
end
return redis.error_reply('ACKER it has ' .. ARGV[3] .. ' lines, its most')
