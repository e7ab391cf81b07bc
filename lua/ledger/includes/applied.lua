-- The progress of a commit in this shard, a hash. It has the names of applied staged vectors and of calls
-- that failed trees, and `applied`, their number. For each slab it has the trees that the commit failed
-- itself (indexes, u16). wait:<slab> is the rotation at which a slab that waits for its track entered the
-- nursery, if tuples were emitted into it, or trees of it failed in a commit that receives external rows, or
-- without room to wait for their track;
-- `waits` is the lowest of these rotations, and `until` the time until which these slabs wait at least (ms;
-- waiting.stay), for any number of ticks. It also has the names of records that the commit made elsewhere
-- (lua/streams/staging/note_applied.lua).
-- The commit's inputs are acked only by a store that holds all of it. A store that lost its latest writes in
-- the middle of a commit would otherwise complete trees whose tuples it has lost. Acks for trees that the
-- commit has failed do not count as late. Waiting emits are dropped three rotations later, if no track has
-- come by then; a later track does not know of them. So from then on the trees of their slab are not acked.
-- Each script notes its own work here, so neither exists without the other; the end of the commit deletes it.
-- @needs shard, waiting
local applied = {NEVER = -3}
local MADE_TTL = 30 * 86400 -- of a commit that nobody ends: as long as all that it needs

function applied.note(key, what)
  if call('HEXISTS', key, what) == 1 then return end
  call('HSET', key, what, '')
  call('HINCRBY', key, 'applied', 1)
  call('EXPIRE', key, MADE_TTL)
end

-- True if it holds the needed number, and after a blank the name of a record made elsewhere.
function applied.holds(key, needed)
  local count, elsewhere = string.match(needed, '^(%d+) ?(.*)$')
  if elsewhere ~= '' and call('HEXISTS', key, elsewhere) == 0 then return false end
  return (tonumber(call('HGET', key, 'applied') or 0) or 0) >= tonumber(count)
end

-- Notes the slabs of the commit's emits that wait for their track: the emits count until a
-- tick may drop them. dropped: there was no room for some, and they never count. till: they wait until then
-- at least (ms; 0: for three rotations). Bounded by the caller: at most 4,000 slabs.
function applied.emitted(key, names, dropped, till)
  local headers = #names > 0 and call('HMGET', SLABS, unpack(names)) or {}
  for k = 1, #names do
    local header = headers[k]
    if not header or byte(header) ~= TRACKED then
      local facts = header and not dropped and slabs.facts(header)
      local since, lowest = facts and facts.rotation or applied.NEVER, call('HGET', key, 'waits')
      if facts and till > 0 then waiting.stay(names[k], header, till) end
      local until_ms = facts and till or 0
      local before = tonumber(call('HGET', key, 'wait:' .. names[k]) or nil) or since
      call('HSET', key, 'wait:' .. names[k], math.min(since, before),
        'waits', math.min(since, tonumber(lowest or nil) or since),
        'until', math.min(until_ms, tonumber(call('HGET', key, 'until') or nil) or until_ms))
      call('EXPIRE', key, MADE_TTL)
    end
  end
end

-- Adds slabs whose emits a tick may have dropped to `found` (slab -> a value for all its trees); returns true
-- if there is one. Bounded by the caller: at most 4,000 slabs.
function applied.dropped(key, names, found, all)
  local lowest, any = call('HGET', key, 'waits'), false
  if not lowest or rotations - (tonumber(lowest) or applied.NEVER) < 3 then return false end
  if now < (tonumber(call('HGET', key, 'until') or nil) or 0) then return false end
  local fields = {}
  for k = 1, #names do fields[k] = 'wait:' .. names[k] end
  local since = #names > 0 and call('HMGET', key, unpack(fields)) or {}
  for k = 1, #names do
    if since[k] and rotations - (tonumber(since[k]) or applied.NEVER) >= 3 then
      found[names[k]], any = all, true
    end
  end
  return any
end

-- The oldest that emits of the commit wait from ("rotation until"); nil where none waits.
function applied.oldest(key)
  local lowest, till = unpack(call('HMGET', key, 'waits', 'until'))
  return lowest and lowest .. ' ' .. (till or 0) or nil
end

-- Notes that the commit has failed trees of a slab, by their packed indexes.
function applied.fail(key, slab, indexes)
  if indexes ~= '' then call('HSET', key, slab, (call('HGET', key, slab) or '') .. indexes) end
end

-- The trees of slabs that the commit has failed: slab -> packed index -> true; nil where there is none.
-- Bounded by the caller: at most 4,000 slabs.
function applied.failed(key, names)
  local found = #names > 0 and call('HMGET', key, unpack(names)) or {}
  local failed
  for k = 1, #names do
    if found[k] then
      local own = {}
      for at = 1, #found[k], 2 do own[sub(found[k], at, at + 1)] = true end
      failed = failed or {}
      failed[names[k]] = own
    end
  end
  return failed
end
