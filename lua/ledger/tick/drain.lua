-- Expires a bounded piece of the slabs that a rotation set aside.
--
-- KEYS  keys of ledger/includes/shard.lua, then
--       1 expired     set of the rotation
--       ... vector    of each slab to drain
-- ARGV  1 spouts
--       2 rotation
--       3 kept        number of failed or expired trees that the shard keeps for people
--       4 until       the time when the reasons become old (ms); 0 for never
--       5 odd         number of members of the set that are no names of slabs
--       ... member    each of these
--       last texts    number of reasons
--       ... text      each of these, numbered from 1
--       ... code      if there are reasons, for each slab: the reasons of its trees. The number for all
--                     unnamed trees, then runs (from and n as u16, number as byte); 0 is no reason
-- Returns {expired, orphaned, slabs left in the set, {unreadable records}}; expired is -1 if the reasons are
-- too old, because trees may have moved on since the scan: nothing is done then.
-- Tells the spouts: expired for each tree still pending. Waiting trees are dropped and counted as orphaned,
-- except trees that wait for a time that is not over (waiting.stay): they go back to the nursery.
-- Bounded by the caller: at most 200 slabs a call; stops by itself after 16,384 trees.
-- A slab whose record cannot be read is dropped and counted (ledger/includes/unreadable.lua).
-- Any number of tickers may run and die: the call that takes a slab out of the set drains it, in one step.
--- @include "ledger/includes/shard"
--- @include "ledger/includes/id_pieces"
--- @include "ledger/includes/drop_id_pieces"
--- @include "ledger/includes/outcomes"
--- @include "ledger/includes/recent"
--- @include "ledger/includes/early"
--- @include "ledger/includes/waiting"
--- @include "ledger/includes/nursery"
--- @include "ledger/includes/unreadable"
local rotation, aside = tonumber(ARGV[2]), KEYS[OWN]
local reasons_until = tonumber(ARGV[4])
if reasons_until > 0 and now > reasons_until then return {-1, 0, call('SCARD', aside), {}} end
recent.kept = tonumber(ARGV[3])
local n = #KEYS - OWN
local keys, names = {}, {}
for k = 1, n do
  keys[k] = KEYS[OWN + k]
  names[k] = slabs.name(keys[k])
end
local expired, orphaned, dropped = 0, 0, {}

-- The record of a slab, and its waiting messages; nil if the record cannot be read as a whole.
local function facts_of(slab, header, value)
  local facts = header and slabs.facts(header)
  if not facts then return nil end
  if facts.tracked then return (not value or #value == facts.count * 8) and facts or nil end
  local waited = waiting.read(slab, value or '')
  if waited then return facts, waited end
end

-- Counts an unreadable waiting slab as gone, with the bytes of its parts.
local function leave(slab, header, value)
  local vector = vectors.is_one(slab) and '' or value or ''
  local parts = #vector + call('HSTRLEN', EARLY, slab) + call('HSTRLEN', FAILURES, slab)
  waiting.leave(header and slabs.facts(header) or {}, WAITING_SLAB + parts)
end

local odd = tonumber(ARGV[5])
local texts = tonumber(ARGV[6 + odd])

-- The text of a reason.
local function text(number)
  return number > 0 and ARGV[6 + odd + number] or ''
end

-- Adds the outcome of a slab's pending trees, at `indexes` or all of them: one for each reason.
local function expire(k, slab, facts, indexes, pending)
  local code = ARGV[6 + odd + texts + k]
  if not code or #code == 0 then return outcomes.add('expired', '', slab, facts, indexes, pending) end
  local other = byte(code)
  if #code == 1 then return outcomes.add('expired', text(other), slab, facts, indexes, pending) end
  local number_of, groups = {}, {}
  for at = 2, #code, 5 do
    local first, count, number = unpack_from('<I2I2B', code, at)
    for index = first, first + count - 1 do number_of[index] = number end
  end
  local function put(index)
    local number = number_of[index] or other
    local group = groups[number]
    if not group then
      group = {}
      groups[number] = group
    end
    group[#group + 1] = index
  end
  if indexes then
    for i = 1, #indexes do put(indexes[i]) end
  else
    for index = 0, facts.count - 1 do put(index) end
  end
  for number, group in pairs(groups) do
    outcomes.add('expired', text(number), slab, facts, group, #group)
  end
end

-- Drops a slab with an unreadable record, and counts the trees of its vector and message ids as gone.
local function drop(slab, header, value)
  dropped[#dropped + 1] = slab
  unreadable.add(slab)
  if call('HEXISTS', MESSAGE_IDS, slab) == 0 then
    leave(slab, header, value)
  else
    local length = floor(#(value or '') / 8)
    local _, finished = words.zeros(sub(value or '', 1, length * 8))
    local count = unreadable.count(slab) or length
    counters.add('expiring', finished - length)
    counters.add('outstanding', (tonumber(call('HGET', CONFIRMED, slab) or 0) or 0) - count)
  end
end

if n > 0 then
  local present = call('SMISMEMBER', aside, unpack(names))
  local headers = call('HMGET', SLABS, unpack(names))
  local ones = call('HMGET', ONES, unpack(names))
  local taken, gone, gone_ones, forgotten, trees = {}, {}, {}, {}, 0
  for k = 1, n do
    if trees >= 16384 then break end
    if present[k] == 1 then
      local slab, header, value = names[k], headers[k], ones[k] or call('GET', keys[k])
      taken[#taken + 1] = slab
      local facts, waited = facts_of(slab, header, value)
      if not facts and (header or value) then
        drop(slab, header, value)
        gone[#gone + 1], gone_ones[#gone_ones + 1] = keys[k], slab
      end
      if waited and facts.rotation + 2 == rotation and waiting.till(header) > now then
        trees = trees + 1
        nursery.enter(keys[k], slab, header, facts)
      elseif facts and facts.rotation + 2 == rotation then
        local length = value and #value / 8 or 0
        local work = waited and math.max(#waited.words / 8, waited.bytes / 16) or length
        trees = trees + math.max(1, work)
        local zeros, z = {}, length
        if value then
          if ones[k] then gone_ones[#gone_ones + 1] = slab else gone[#gone + 1] = keys[k] end
          zeros, z = words.zeros(value)
        end
        if facts.tracked then
          if length - z > 0 then
            expired = expired + length - z
            local indexes = z > 0 and words.others(zeros, length) or nil
            expire(k, slab, facts, indexes, length - z)
          end
        else
          orphaned = orphaned + waiting.lost(waited.words, waited.failures, 0)
          waiting.leave(facts, waited.bytes)
          waiting.drop_names(slab, facts)
          forgotten[#forgotten + 1] = slab
        end
      end
    end
  end
  if #taken > 0 then call('SREM', aside, unpack(taken)) end
  if #gone > 0 then call('DEL', unpack(gone)) end
  if #taken > 0 then call('HDEL', FINISHED, unpack(taken)) end
  if #gone_ones > 0 then call('HDEL', ONES, unpack(gone_ones)) end
  if #forgotten > 0 then
    call('HDEL', SLABS, unpack(forgotten))
    call('HDEL', FAILURES, unpack(forgotten))
    call('HDEL', EARLY, unpack(forgotten))
  end
  for _, slab in ipairs(dropped) do drop_id_pieces(slab, SLAB_TREES) end
  if #dropped > 0 then
    for _, hash in ipairs({SLABS, MESSAGE_IDS, FAILURES, EARLY, CONFIRMED}) do
      call('HDEL', hash, unpack(dropped))
    end
  end
  counters.add('orphaned', orphaned)
end
for i = 6, 5 + odd do
  if call('SREM', aside, ARGV[i]) == 1 then unreadable.add(ARGV[i]) end
end
local left = call('SCARD', aside)
if left == 0 and tonumber(call('HGET', CLOCK, 'drained')) == rotation and rotation < rotations then
  call('HSET', CLOCK, 'drained', rotation + 1)
end
outcomes.flush()
slabs.flush()
counters.flush()
return {expired, orphaned, left, unreadable.names}
