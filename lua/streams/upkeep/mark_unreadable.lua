-- Marks staged vectors that cannot be read, where they are still there, so that they are counted once.
--
-- KEYS  1 staged  hash (lua/streams/staging/stage.lua): its `unread`
-- ARGV  none
-- Returns 1 if they were marked now.
local call = redis.call
if call('EXISTS', KEYS[1]) == 0 then return 0 end
return call('HSETNX', KEYS[1], 'unread', 1)
