-- Shared code of the scripts that make a topology, or something of a stream. A late copy of their call makes
-- nothing anew that was removed since.

-- An error if the topology, or the stream or a subscription of it, was removed since the caller has read
-- `seen`, or if it is after `till` (ms of the server's clock). removals: string, how often that was lately;
-- seen: may be empty.
local function late(removals, seen, till)
  local instant = redis.call('TIME')
  local over = instant[1] * 1000 + math.floor(instant[2] / 1000) > tonumber(till)
  if over or (redis.call('GET', removals) or '') ~= seen then return redis.error_reply('ACKER LATE') end
end
