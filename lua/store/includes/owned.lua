-- Shared code of the scripts on what a topology has beside its shards, streams and spouts.
--
-- A late copy of a call makes nothing after a removal of the topology. What others write without a topology
-- has a time to live, for nobody would find it again. A process that opens the topology anew, in a store that
-- has lost it, keeps it (lua/ledger/settings/open_topology.lua).
local LEFT = 86400 -- seconds

-- Notes that something was named: no late copy of a call that takes names off (lua/lines/forget_names.lua)
-- takes it. named: key of a string, when that was last, in the same slot; it is no KEYS.
local function note_named(named)
  local instant = redis.call('TIME')
  redis.call('SET', named, instant[1] .. '-' .. instant[2], 'EX', LEFT)
end

-- An error if the topology was removed since the caller has read `seen`. removals: the key of a string, when
-- it was removed last, in the same slot; it is no KEYS, as executors may only read it.
local function removed_since(removals, seen)
  if (redis.call('GET', removals) or '') ~= seen then return redis.error_reply('ACKER LATE') end
end

-- Gives a key a time to live where its topology is gone. config: the key of its configuration, in the same
-- slot, which executors may only read.
local function leave(key, config)
  if redis.call('EXISTS', config) == 0 then redis.call('EXPIRE', key, LEFT) end
end
