-- Gathers the outcomes of one call and tells each spout of them by at most one stream entry for each status
-- and reason, or by one for many reasons. An entry holds, as bytes,
--   reasons: (length as u16, text)*                                     one, or several that `why` names
--   whole: (latency in ms as u32, n as u16, n slabs)*                   all trees of each slab
--   part:  (slab, latency in ms as u32, n as u16, n indexes as u16)*    some of its trees
--   why:   u16 for each tree of `part`: its reason, from 0; empty for a single reason
local outcomes = lazy(function(outcomes)
  outcomes.acked, outcomes.failed, outcomes.expired = {}, {}, {}
  local mixed = {} -- entries with many reasons, by status and spout: the last of each list is being filled
  -- Most bytes of reasons in an entry: a reader has the reasons of some entries in memory.
  local REASON_BYTES = 16384

  function outcomes.pack_indexes(indexes)
    local pieces = {}
    for first = 1, #indexes, 100 do -- unpack() and struct take so many at a time
      local last = math.min(first + 99, #indexes)
      pieces[#pieces + 1] = pack('<' .. rep('I2', last - first + 1), unpack(indexes, first, last))
    end
    return table.concat(pieces)
  end

  -- A list of reasons, as they are packed. At most one for each tree of a call.
  function outcomes.unpack_reasons(packed)
    local reasons, at = {}, 1
    while at < #packed do
      local length = unpack_from('<I2', packed, at)
      reasons[#reasons + 1] = sub(packed, at + 2, at + 1 + length)
      at = at + 2 + length
    end
    return reasons
  end

  -- Histogram bucket of a latency: eight to each doubling (latency_histogram.py has the same formula).
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

  local function new_entry(list)
    local entry = {whole = {}, part = {}, why = {}, reasons = {}, numbers = {}, bytes = 0, trees = 0}
    list[#list + 1] = entry
    return entry
  end

  -- Adds the outcome of the n trees of a slab at `indexes`, each with its reason of `reasons`.
  function outcomes.add_each(status, reasons, slab, facts, indexes, n)
    local of_status = mixed[status] or {}
    mixed[status] = of_status
    local list = of_status[facts.spout] or {}
    of_status[facts.spout] = list
    local entry, first = list[#list] or new_entry(list), 1
    local function close(last)
      if last < first then return end
      entry.part[#entry.part + 1] = slab .. facts.packed_ms .. pack('<I2', last - first + 1) ..
        outcomes.pack_indexes({unpack(indexes, first, last)})
      entry.trees = entry.trees + last - first + 1
      first = last + 1
    end
    for i = 1, n do
      local reason = reasons[i]
      if not entry.numbers[reason] then
        if entry.bytes >= REASON_BYTES then
          close(i - 1)
          entry = new_entry(list)
        end
        entry.numbers[reason] = #entry.reasons
        entry.reasons[#entry.reasons + 1] = pack('<I2', #reason) .. reason
        entry.bytes = entry.bytes + #reason
      end
      entry.why[#entry.why + 1] = entry.numbers[reason]
    end
    close(n)
    facts.ended = facts.ended + n
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

  local function write(status, spout, entry)
    local why = outcomes.pack_indexes(entry.why or {})
    if status ~= 'acked' then outcomes.keep(status, entry.packed, spout, entry) end
    call('XADD', spouts.streams[spout], '*', 'status', status, 'at', now, 'reasons', entry.packed,
      'whole', pack_whole(entry, status), 'part', table.concat(entry.part), 'why', why)
    counters.add(status, entry.trees)
  end

  -- Writes the entries: one XADD each, at most one for each spout, status and reason of this call, and as
  -- many as the bytes of further reasons make.
  function outcomes.flush()
    for _, status in ipairs({'acked', 'failed', 'expired'}) do
      for reason, entries in pairs(outcomes[status]) do
        for spout, entry in pairs(entries) do
          entry.packed = pack('<I2', #reason) .. reason
          write(status, spout, entry)
        end
      end
      for spout, list in pairs(mixed[status] or {}) do
        for i = 1, #list do
          list[i].packed = table.concat(list[i].reasons)
          write(status, spout, list[i])
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
end)
