-- Gives a step its number, by which marks name it (marks.lua), for the life of the topology. It is
-- made of the step's name, so no store gives it to another step, even after a loss.
--
-- KEYS  1 numbers  hash  name of a step -> its number
-- ARGV  1 name
--       2 number   from 1
--       3 most     most numbered steps
--       4 config   key of the topology's configuration
--       5 removals, 6 seen  (store/includes/owned.lua)
-- Returns the number; 0 if so many other steps have one, or another step has this number. An error ACKER LATE
-- if the topology was removed since.
--- @include "store/includes/owned"
local refused = removed_since(ARGV[5], ARGV[6])
if refused then return refused end
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return tonumber(ARGV[2]) end
local known = redis.call('HVALS', KEYS[1]) -- at most 255
if #known >= tonumber(ARGV[3]) then return 0 end
for _, number in ipairs(known) do
  if number == ARGV[2] then return 0 end
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
leave(KEYS[1], ARGV[4])
return tonumber(ARGV[2])
