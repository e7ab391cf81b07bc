-- Takes which rows of external segments a subscription has worked on, and which of them have failed: bits are
-- ORed, so what comes twice counts once. The state of each segment decides, in this one script: before it is
-- emitted, bits and fails wait in its hash, which they make where there is none.
--
-- KEYS  keys of ledger/includes/shard.lua, then
--       1 applied     hash of the commit that says so (ledger/includes/applied.lua)
--       2 waits    hash: generation -> bytes of bits and fails that wait in this shard
--       ... staged  of each segment: a hash (lua/streams/includes/external.lua); no segment twice
-- ARGV  1 spouts
--       2 limit    of the bytes that wait for their track
--       3 kept     how many of its trees that failed or expired the shard keeps for people
--       4 needed   what `applied` must hold (applied.holds); empty where the commit has made nothing here
--       5 ttl      seconds for which what is not emitted waits
--       6 most     bytes of bits and fails that wait in this shard
--       ... first, bits, fails  of each segment: 0, or how many rows from its first on, without a gap: bits
--                 are empty then; and bits and fails as they stand in its hash
-- Returns a letter for each segment: l the shard has lost what the commit emitted, d it may have dropped it,
-- for that waited too long for its track: nothing is noted then; w it is not emitted yet; o it is open; m it
-- is, and further fails wait to be taken, by this script with no bits; v it is void: its trees are to be
-- failed; f it is full, and to be acked (apply_staged.lua); a it was acked. After them the slabs that were
-- refused, as of update.lua. An error FULL where there is no room: nothing is changed then.
-- The fail of a row counts with its bit: what is set already has none.
-- Tells the spouts: failed.
-- Bounded by the caller: at most 1 MiB of bits, 250 trees that fail, and 500 segments a call.
--- @chained string.sub(reply, 1, 1) ~= 'l'
--- @include "ledger/includes/shard"
--- @include "ledger/includes/id_pieces"
--- @include "ledger/includes/drop_id_pieces"
--- @include "ledger/includes/outcomes"
--- @include "ledger/includes/recent"
--- @include "ledger/includes/early"
--- @include "ledger/includes/waiting"
--- @include "ledger/includes/applied"
--- @include "ledger/calls/includes/failing"
--- @include "streams/includes/external"
waiting.limit = tonumber(ARGV[2])
recent.kept = tonumber(ARGV[3])
local progress, waits, needed = KEYS[OWN], KEYS[OWN + 1], ARGV[4]
local ttl, most = tonumber(ARGV[5]), tonumber(ARGV[6])
local FULL, VOID, FAILS, BITS, STATE, CHARGED = 1, 2, 3, 4, 8, 9 -- places in external.facts
local wait = needed ~= '' and applied.oldest(progress) or nil
if needed ~= '' and not applied.holds(progress, needed) then return rep('l', #KEYS - OWN - 1) end
if external.is_old(wait) then return rep('d', #KEYS - OWN - 1) end

-- The bits of a segment with the call's bits, and the fails of rows that had no bit before.
local function merged(k, facts)
  local at = 7 + 3 * (k - OWN - 2)
  local first, bits, fails = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local before, had = facts[FAILS] or '', facts[BITS]
  if first ~= '0' then bits = external.first(tonumber(first)) end
  if fails ~= '' then
    local new = {before}
    for _, row in ipairs(external.fails(fails)) do
      if not external.has(had or '', row.position) then new[#new + 1] = sub(fails, row.from, row.to) end
    end
    before = table.concat(new)
  end
  return external.either(had, bits), before
end

local segments, growth = {}, 0
for k = OWN + 2, #KEYS do
  local facts, at = external.facts(KEYS[k]), 7 + 3 * (k - OWN - 2)
  segments[k] = facts
  facts.emitted = facts[STATE] and not find(facts[STATE], '0', 1, true)
  if not facts.emitted and (ARGV[at] ~= '0' or ARGV[at + 1] ~= '' or ARGV[at + 2] ~= '') then
    facts.bits, facts.fails = merged(k, facts)
    facts.bytes = external.size(facts.bits, facts.fails)
    growth = growth + facts.bytes - tonumber(string.match(facts[CHARGED] or '', '%d+$') or 0)
  end
end
if growth > 0 and not external.has_room(waits, growth, ttl, most) then
  external.flush()
  return redis.error_reply('FULL ' .. most .. ' bytes of rows that came before their segments wait here')
end
local letters = {}
for k = OWN + 2, #KEYS do
  local key, facts = KEYS[k], segments[k]
  local state, letter = facts[STATE], 'w'
  if state and not find(state, '[^2]') then
    letter = 'a'
  elseif facts[FULL] or facts[VOID] then
    letter = facts[FULL] and 'f' or 'v'
  elseif facts.emitted then
    local bits, fails = merged(k, facts)
    if fails ~= '' then
      call('HSET', key, 'fails', fails)
      facts[FAILS] = fails
    end
    letter = external.look(key, bits ~= '' and bits or nil, facts)
  elseif facts.bytes then
    if not state and call('EXISTS', key) == 0 then
      call('HSET', key, 'early', 1)
      call('EXPIRE', key, ttl)
    else
      call('EXPIRE', key, ttl, 'GT')
    end
    if facts.bits ~= '' then call('HSET', key, 'bits', facts.bits) end
    if facts.fails ~= '' then call('HSET', key, 'fails', facts.fails) end
    if wait then call('HSET', key, 'oldest', external.older(call('HGET', key, 'oldest'), wait)) end
    external.charge(key, waits, facts.bytes, ttl)
  end
  letters[#letters + 1] = letter
end
external.flush()
outcomes.flush()
slabs.flush()
counters.flush()
return table.concat(letters) .. slabs.refusals
