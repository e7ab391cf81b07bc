-- Shared code of the scripts on what a topology has beside its shards, streams and spouts.
--
-- A late copy of a call may come after the topology was removed. What it makes has a time to live then, for
-- nobody would find it again. A process that opens the topology anew, in a store that has lost it, keeps it
-- (lua/ledger/settings/open_topology.lua).
local LEFT = 86400 -- seconds

-- Gives a key a time to live where its topology is gone. config: the key of its configuration, in the same
-- slot, which executors may only read.
local function leave(key, config)
  if redis.call('EXISTS', config) == 0 then redis.call('EXPIRE', key, LEFT) end
end
