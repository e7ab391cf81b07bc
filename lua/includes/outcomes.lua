-- Gathers the outcomes of one call and tells each spout of them by at most one stream entry for each status
-- and reason. An entry holds, as bytes,
--   whole: (latency in ms as u32, n as u16, n slabs)*                   all trees of each slab
--   part:  (slab, latency in ms as u32, n as u16, n indexes as u16)*    some of its trees
local outcomes = {acked = {}, failed = {}, expired = {}}

function outcomes.pack_indexes(indexes)
  local pieces = {}
  for first = 1, #indexes, 100 do -- unpack() and struct take so many at a time
    local last = math.min(first + 99, #indexes)
    pieces[#pieces + 1] = pack('<' .. rep('I2', last - first + 1), unpack(indexes, first, last))
  end
  return table.concat(pieces)
end

-- Histogram bucket of a latency: eight to each doubling (acker/ledger/histogram.py has the same formula).
function outcomes.latency_bucket(ms)
  return floor(math.log(ms + 1) / math.log(2) * 8)
end

local function entry_of(status, reason, spout)
  local entries = outcomes[status][reason]
  if not entries then
    entries = {}
    outcomes[status][reason] = entries
  end
  local entry = entries[spout]
  if not entry then
    entry = {whole = {}, part = {}, trees = 0}
    entries[spout] = entry
  end
  return entry
end

-- Adds the outcome of all trees of some slabs that have these facts.
function outcomes.add_slabs(status, reason, facts, names)
  local whole = entry_of(status, reason, facts.spout).whole
  local list = whole[facts]
  if not list then
    whole[facts] = names
  else
    for i = 1, #names do list[#list + 1] = names[i] end
  end
end

-- Adds the outcome of the n trees of a slab at `indexes`; nil means all of its trees.
function outcomes.add(status, reason, slab, facts, indexes, n)
  if not indexes or n == facts.count then
    return outcomes.add_slabs(status, reason, facts, {slab})
  end
  local entry = entry_of(status, reason, facts.spout)
  entry.part[#entry.part + 1] = slab .. facts.packed_ms .. pack('<I2', n) .. outcomes.pack_indexes(indexes)
  entry.trees = entry.trees + n
  facts.ended = facts.ended + n
  if status == 'acked' then facts.acked = facts.acked + n end
end

local function pack_whole(entry, status)
  local pieces = {}
  for facts, list in pairs(entry.whole) do
    local n = #list * facts.count
    entry.trees = entry.trees + n
    facts.ended = facts.ended + n
    if status == 'acked' then facts.acked = facts.acked + n end
    pieces[#pieces + 1] = facts.packed_ms .. pack('<I2', #list) .. table.concat(list)
  end
  return table.concat(pieces)
end

-- Writes the entries: one XADD each, at most one for each spout, status and reason of this call.
function outcomes.flush()
  for _, status in ipairs({'acked', 'failed', 'expired'}) do
    for reason, entries in pairs(outcomes[status]) do
      for spout, entry in pairs(entries) do
        if status ~= 'acked' then outcomes.keep(status, reason, spout, entry) end
        call('XADD', spouts.stream(spout), '*', 'status', status, 'at', now, 'reason', reason,
          'whole', pack_whole(entry, status), 'part', table.concat(entry.part))
        counters.add(status, entry.trees)
      end
    end
  end
  local latencies = {}
  for _, facts in pairs(slabs.known) do
    if facts.ended > 0 then counters.add(slabs.bucket_counter(facts.rotation), -facts.ended) end
    if facts.acked > 0 then
      local bucket = outcomes.latency_bucket(facts.ms)
      latencies[bucket] = (latencies[bucket] or 0) + facts.acked
    end
  end
  for bucket, n in pairs(latencies) do counters.raise(LATENCY, bucket, n) end
end
