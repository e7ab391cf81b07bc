-- What a commit has made in this shard: a hash of names of staged vectors that are applied and of calls
-- that failed trees, `made` counts them; of each slab the trees that it failed itself (indexes, u16);
-- wait:<slab>, where tuples were emitted into a slab that waits for its track: the rotation at which that
-- has entered the nursery, and `waits`, the lowest of these; and names of what it has made elsewhere
-- (lua/streams/staging/note_made.lua).
-- Its inputs are acked only by a store that holds all of it: one that lost its latest moments in the middle
-- of a commit would else complete trees whose tuples it has lost. And what it acks of trees that it has
-- failed is not late. Emits that wait are dropped three rotations later, where no track has come by then; one
-- that comes after that does not know of them. So from then on the trees of their slab are not acked.
-- All is noted by the script that does it, so neither is there without the other; whoever ends the commit
-- deletes it.
-- @needs shard
local made = {NEVER = -3}
local MADE_TTL = 30 * 86400 -- of a commit that nobody ends: as long as all that it needs

function made.note(key, what)
  if call('HEXISTS', key, what) == 1 then return end
  call('HSET', key, what, '')
  call('HINCRBY', key, 'made', 1)
  call('EXPIRE', key, MADE_TTL)
end

-- Whether it holds what is needed: how much, and after a blank the name of what was made elsewhere.
function made.holds(key, needed)
  local count, elsewhere = string.match(needed, '^(%d+) ?(.*)$')
  if elsewhere ~= '' and call('HEXISTS', key, elsewhere) == 0 then return false end
  return (tonumber(call('HGET', key, 'made') or 0) or 0) >= tonumber(count)
end

-- Notes which of the slabs that the commit has emitted into wait for their track: the emits count until a
-- tick may drop them. dropped: there was no room for some, and they never count. Bounded by the caller: at
-- most 4,000 slabs.
function made.emitted(key, names, dropped)
  local headers = #names > 0 and call('HMGET', SLABS, unpack(names)) or {}
  for k = 1, #names do
    local header = headers[k]
    if not header or byte(header) ~= TRACKED then
      local facts = header and not dropped and slabs.facts(header)
      local since, lowest = facts and facts.rotation or made.NEVER, call('HGET', key, 'waits')
      local before = tonumber(call('HGET', key, 'wait:' .. names[k]) or nil) or since
      call('HSET', key, 'wait:' .. names[k], math.min(since, before),
        'waits', math.min(since, tonumber(lowest or nil) or since))
      call('EXPIRE', key, MADE_TTL)
    end
  end
end

-- Puts slabs into `found` (slab -> what stands for all their trees) whose emits a tick may have dropped;
-- returns whether there is one. Bounded by the caller: at most 4,000 slabs.
function made.dropped(key, names, found, all)
  local lowest, any = call('HGET', key, 'waits'), false
  if not lowest or rotations - (tonumber(lowest) or made.NEVER) < 3 then return false end
  local fields = {}
  for k = 1, #names do fields[k] = 'wait:' .. names[k] end
  local since = #names > 0 and call('HMGET', key, unpack(fields)) or {}
  for k = 1, #names do
    if since[k] and rotations - (tonumber(since[k]) or made.NEVER) >= 3 then
      found[names[k]], any = all, true
    end
  end
  return any
end

-- Notes that the commit has failed trees of a slab, by their packed indexes.
function made.fail(key, slab, indexes)
  if indexes ~= '' then call('HSET', key, slab, (call('HGET', key, slab) or '') .. indexes) end
end

-- The trees of slabs that the commit has failed: slab -> packed index -> true; nil where there is none.
-- Bounded by the caller: at most 4,000 slabs.
function made.failed(key, names)
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
