-- Shared code of the scripts on a stream. The hash of its subscriptions holds:
--
--   slots          the numbers of the subscriptions, as "0,2"; empty or missing: there is none
--   next           the number of the next one, if there is none and segments were staged for it
--   epoch          random: a store that lost the stream has another (acker/streams/log/known_readers.py), and
--                  programs that receive rows of an external stream know it by that
--   name:<name>    its number              slot:<n>     its name, until it is dropped
--   cursor:<n>     id of the last entry delivered to one of its readers
--   created:<n>    the time when it was made (ms)
--   rows:<n>, acked:<n>, dropped:<n>       its published rows, and of these the acked rows, and the rows
--   dropped by the limits; without rows that only end a bundle (release_bundle.lua)
--   late:<n>       its acks that came after the end of their trees
--   stale:<n>      its rows that were dropped on reading, because all their trees were over
--   emitted        tuples emitted into the stream: its rows, once for each of their subscriptions
--   segments, bytes                        sums over the entries of the stream; of an external one, the bytes
--   of the vectors of its open segments
--   dropped        segments dropped by the limits
--   waiting        rows of a gathering stream that wait for other rows of their requests
--   max_age, max_bytes                     the limits, if they are not the default
--   version        of the function whose step reads it (acker/drpc/registry.py)
--   fair           the column of the keys of fair reading; lanes:<n>   streams/includes/lanes.lua
--
--   external       the number of the key of its stamps: its rows are elsewhere (streams/staging/external)
--   stamp_key:<k>  that key; lost_after, downtime, most_segments, most_bytes   options of an external stream
--   ahead:<n>      rows of segments that a subscription has acked and others have not, as of the last tick
--   passed:<n>     the entry before the first one that a subscription has not acked, as of the last tick
--   received:<n>   when the newest segment was begun that rows were received of (Unix seconds)
--   served:<n>     its live steps, as "count 1732640000000 0": until when (ms), and 1 if it shares the
--                  subscription
--   gone           the slots of subscriptions that were dropped, the latest first, as "2,0,": another slot
--                  that is not here was lost with its store
--   unheard        rows of external segments that were sent while there was no subscription
--   seen_rows:<n>, seen_unstamped:<n>, seen_damaged:<n>, seen_foreign:<n>, seen_newer:<n>, seen_over:<n>
--                  rows that its programs have seen, and what they carried in the place of a stamp
--
-- A segment that is staged without a subscription is for the next one.
local call = redis.call
local MOST_STAGED = 7 * 86400 -- seconds that staged rows wait at most, before a commit holds them for longer
local stream = {}

-- Raises a count by so many. An unreadable count begins anew: an error here would leave a call half done.
-- Where the stream is gone, as for a late copy of a call after its removal, nothing is counted.
function stream.count(subscriptions, name, by)
  if call('EXISTS', subscriptions) == 0 then return end
  local raised = redis.pcall('HINCRBY', subscriptions, name, by)
  if type(raised) == 'table' then call('HSET', subscriptions, name, by) end
end

-- An error if the number of the next subscription cannot be read, raised before anything has changed.
function stream.unreadable(subscriptions)
  if call('HEXISTS', subscriptions, 'external') == 1 then
    return redis.error_reply('EXTERNAL ' .. subscriptions .. ': rows of a managed stream are to be published')
  end
  if tonumber(call('HGET', subscriptions, 'next') or 0) then return nil end
  return redis.error_reply('UNREADABLE the number of the next subscription of ' .. subscriptions)
end

-- An error if no commit holds the rows of a staged segment to be published: the store was rolled back since,
-- and may also have lost their tuples. Nothing has changed then. keys: from `first` on, each `step`-th one is
-- a payload, and the next its unacked. A published or missing segment needs nothing.
function stream.lost(keys, first, step)
  for k = first, #keys, step do
    local left = call('TTL', keys[k])
    if left >= 0 and left <= MOST_STAGED and call('EXISTS', keys[k + 1]) == 0 then
      return redis.error_reply('ACKER nobody holds the rows of ' .. keys[k])
    end
  end
end

-- The numbers in `slots` of present subscriptions, or of the next one; of dropped ones; and of lost ones. The
-- store was emptied or rolled back since these were read.
local function divided(subscriptions, slots)
  local following, dropped = unpack(call('HMGET', subscriptions, 'next', 'gone'))
  local living, gone, lost = {}, {}, {}
  for slot in string.gmatch(slots, '%d+') do -- at most 64
    local to = lost
    if slot == following or call('HEXISTS', subscriptions, 'slot:' .. slot) == 1 then
      to = living
    elseif string.find(',' .. (dropped or ''), ',' .. slot .. ',', 1, true) then
      to = gone
    end
    to[#to + 1] = slot
  end
  return living, gone, lost
end

-- The slots for rows without trees: `slots`, or the present slots if none of these is left. following: the
-- number of the next subscription, if it has none yet.
function stream.renewed(subscriptions, slots, following)
  if #divided(subscriptions, slots) > 0 then return slots end
  local now = call('HGET', subscriptions, 'slots') or ''
  if now ~= '' then return now end
  call('HSETNX', subscriptions, 'next', following)
  return call('HGET', subscriptions, 'next')
end

-- Publishes a segment for its `slots` that were not dropped meanwhile; returns true if there is one.
-- `unacked` notes for each slot: 1 published for it; 0 dropped before that, and other slots have the segment,
-- or are lost; x dropped, as all of its slots; l lost. The publisher ends the debts to dropped slots, see
-- stream.gone. lane: of streams/includes/lanes.lua, as text; nil is '0'. ends: true if its rows only end a
-- bundle.
function stream.publish(entries, subscriptions, unacked, record, rows, bytes, slots, lane, ends)
  local living, gone, lost = divided(subscriptions, slots)
  local states, counted = {}, ends and 0 or rows
  for _, slot in ipairs(living) do
    states[#states + 1], states[#states + 2] = slot, '1'
    stream.count(subscriptions, 'rows:' .. slot, counted)
  end
  for _, slot in ipairs(gone) do
    states[#states + 1], states[#states + 2] = slot, #living + #lost > 0 and '0' or 'x'
  end
  for _, slot in ipairs(lost) do states[#states + 1], states[#states + 2] = slot, 'l' end
  call('HSET', unacked, unpack(states))
  if #living == 0 then
    stream.count(subscriptions, 'dropped', 1)
    return false
  end
  call('XADD', entries, '*', 'segment', record, 'rows', rows, 'slots', table.concat(living, ','),
    unpack((lane or '0') ~= '0' and {'lane', lane} or {}))
  stream.count(subscriptions, 'emitted', counted * #living)
  stream.count(subscriptions, 'segments', 1)
  stream.count(subscriptions, 'bytes', bytes)
  return true
end

-- The slots that were dropped before a segment was published, as "0,2"; after an x if all were. A slot that
-- was lost stands there with an l before it.
function stream.gone(unacked)
  local states, found, nobody = call('HGETALL', unacked), {}, ''
  for s = 1, #states, 2 do -- at most 64
    local slot, state = states[s], states[s + 1]
    if state == 'x' then nobody = 'x' end
    if state == '0' or state == 'x' then found[#found + 1] = slot end
    if state == 'l' then found[#found + 1] = 'l' .. slot end
  end
  return nobody .. table.concat(found, ',')
end

-- Takes an entry out of the stream; returns true if it was there.
function stream.remove(entries, subscriptions, id, bytes)
  if call('XDEL', entries, id) == 0 then return false end
  stream.count(subscriptions, 'segments', -1)
  stream.count(subscriptions, 'bytes', 0 - bytes) -- not -bytes: Redis takes no -0
  return true
end
