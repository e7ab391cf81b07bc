-- Gives a step its number, by which marks name it (includes/marks.lua), for the life of the topology.
--
-- KEYS  1 numbers  hash  name of a step -> its number
-- ARGV  1 name
--       2 most     how many numbers there are: from 1 on
-- Returns the number; 0 where others have them all.
local number = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or nil)
if number then return number end
local known = redis.call('HLEN', KEYS[1])
if known >= tonumber(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], known + 1)
return known + 1
