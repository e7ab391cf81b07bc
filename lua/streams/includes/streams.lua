-- What the scripts on a stream share. The hash of its subscriptions holds:
--
--   slots          the numbers of the subscriptions there are, as "0,2"; empty or missing: there is none
--   next           the number of the next one, where there is none and segments were staged for that
--   life           random: a store that lost all this has another (acker/streams/log/known_readers.py)
--   name:<name>    its number              slot:<n>     its name, until it is dropped
--   cursor:<n>     id of the last entry that was given to one of its readers
--   made:<n>       when it was made (ms)
--   rows:<n>, acked:<n>, dropped:<n>       rows published for it; of these acked, and dropped by the limits
--   late:<n>       its acks that came too late: their trees were over
--   stale:<n>      its rows that were dropped when they were read: all their trees were over
--   emitted        tuples emitted into the stream: its rows, once for each subscription they were for
--   segments, bytes                        what the entries of the stream hold
--   dropped        segments dropped by the limits
--   waiting        rows of a stream that gathers which wait for others of their requests
--   max_age, max_bytes                     those limits, where they are not the default
--   version        of the function whose step reads it (acker/drpc/registry.py)
--   fair           the column by whose values it is read fairly; lanes:<n>   streams/includes/lanes.lua
--
-- A segment that is staged while there is no subscription is for the next one.
local call = redis.call
local MOST_STAGED = 7 * 86400 -- seconds that staged rows wait at most, before a commit holds them for longer
local stream = {}

-- Raises a count by so many. One that cannot be read begins anew: to end here would leave a call half done.
function stream.count(subscriptions, name, by)
  local raised = redis.pcall('HINCRBY', subscriptions, name, by)
  if type(raised) == 'table' then call('HSET', subscriptions, name, by) end
end

-- An error where the number of the next subscription cannot be read, for before anything has changed.
function stream.unreadable(subscriptions)
  if tonumber(call('HGET', subscriptions, 'next') or 0) then return nil end
  return redis.error_reply('UNREADABLE the number of the next subscription of ' .. subscriptions)
end

-- An error where one of staged segments is to be published whose rows no commit holds: the store was set
-- back since, and may have lost their tuples, too. Nothing has changed then. keys: from `first` on, each
-- `step` one is a payload, and the next its owed. A segment that was published or is gone needs nothing.
function stream.lost(keys, first, step)
  for k = first, #keys, step do
    local left = call('TTL', keys[k])
    if left >= 0 and left <= MOST_STAGED and call('EXISTS', keys[k + 1]) == 0 then
      return redis.error_reply('ACKER nobody holds the rows of ' .. keys[k])
    end
  end
end

-- The numbers among `slots` that are of subscriptions there are, or of the next one; and the others.
local function divided(subscriptions, slots)
  local following, living, gone = call('HGET', subscriptions, 'next'), {}, {}
  for slot in string.gmatch(slots, '%d+') do -- at most 64
    local there = slot == following or call('HEXISTS', subscriptions, 'slot:' .. slot) == 1
    local to = there and living or gone
    to[#to + 1] = slot
  end
  return living, gone
end

-- The slots that rows without trees are for: `slots`, or, where none of these is left, those there are now.
-- following: the number of the next one, where it has none yet.
function stream.renewed(subscriptions, slots, following)
  if #divided(subscriptions, slots) > 0 then return slots end
  local now = call('HGET', subscriptions, 'slots') or ''
  if now ~= '' then return now end
  call('HSETNX', subscriptions, 'next', following)
  return call('HGET', subscriptions, 'next')
end

-- Publishes a segment for those of its `slots` that were not dropped meanwhile; returns if there is one.
-- `owed` notes for each slot: 1 published for it; 0 dropped before that, and others have the segment; x
-- dropped,
-- and nobody has it. Debts to slots that are gone are for who publishes to end, see stream.gone.
-- lane: of streams/includes/lanes.lua, as text; nil is '0'.
function stream.publish(entries, subscriptions, owed, record, rows, bytes, slots, lane)
  local living, gone = divided(subscriptions, slots)
  local states = {}
  for _, slot in ipairs(living) do
    states[#states + 1], states[#states + 2] = slot, '1'
    stream.count(subscriptions, 'rows:' .. slot, rows)
  end
  for _, slot in ipairs(gone) do
    states[#states + 1], states[#states + 2] = slot, #living > 0 and '0' or 'x'
  end
  call('HSET', owed, unpack(states))
  if #living == 0 then
    stream.count(subscriptions, 'dropped', 1)
    return false
  end
  call('XADD', entries, '*', 'segment', record, 'rows', rows, 'slots', table.concat(living, ','),
    unpack((lane or '0') ~= '0' and {'lane', lane} or {}))
  stream.count(subscriptions, 'emitted', rows * #living)
  stream.count(subscriptions, 'segments', 1)
  stream.count(subscriptions, 'bytes', bytes)
  return true
end

-- The slots that were dropped before a segment was published, as "0,2"; after an x where nobody has it.
function stream.gone(owed)
  local states, found, nobody = call('HGETALL', owed), {}, ''
  for s = 1, #states, 2 do -- at most 64
    if states[s + 1] == '0' or states[s + 1] == 'x' then found[#found + 1] = states[s] end
    if states[s + 1] == 'x' then nobody = 'x' end
  end
  return nobody .. table.concat(found, ',')
end

-- Takes an entry out of the stream; returns whether it was there.
function stream.remove(entries, subscriptions, id, bytes)
  if call('XDEL', entries, id) == 0 then return false end
  stream.count(subscriptions, 'segments', -1)
  stream.count(subscriptions, 'bytes', 0 - bytes) -- not -bytes: Redis takes no -0
  return true
end
