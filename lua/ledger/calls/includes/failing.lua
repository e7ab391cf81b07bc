-- Fails trees of a slab, at once and finally. An untracked tree waits as failed.
-- @needs shard, id_pieces, drop_id_pieces, outcomes, recent, early, waiting, applied
local failing = lazy(function(failing)
  failing.failed, failing.late, failing.orphaned = 0, 0, 0

  -- trees: packed indexes (u16). reasons: of each of them; nil if `reason` is the reason of all. ended:
  -- packed index -> true for trees that the commit has failed before, nil for none. noted: key of the
  -- commit's progress (applied.lua), or nil. stay: ms for which fails wait for their track; 0 or nil: for
  -- three rotations. Waiting fails of a commit are noted as its emits are: bits count only beside them. A
  -- fail without room is noted, whatever `stay` is: the commit acks nothing of its slab.
  -- Bounded by the caller: at most 250 trees a call.
  function failing.slab(key, slab, trees, reasons, reason, ended, noted, stay)
    local one = vectors.is_one(slab)
    local header = call('HGET', SLABS, slab) or waiting.open(slab)
    local facts = header and slabs.facts(header)
    local tracked = facts and facts.tracked
    local dropped = false -- a fail for which there was no room
    local failed, f, early_at, packed, own_reasons, early_reasons = {}, 0, {}, {}, {}, {}
    if header and not facts then slabs.refuse(slab) end
    for i = 1, #trees do
      local word = trees[i]
      local index, over = unpack_from('<I2', word), ended and ended[word]
      local said = reason or reasons[i]
      if not header then
        failing.orphaned = failing.orphaned + (over and 0 or 1)
        dropped = dropped or not over
      elseif facts and not tracked and not over then
        early_at[#early_at + 1] = word
        early_reasons[#early_at] = said
      elseif tracked and not over then
        local value = index < facts.count and vectors.word(key, slab, index) or ZERO
        if value == ZERO then
          failing.late = failing.late + 1
        else
          if not one then call('SETRANGE', key, index * 8, ZERO) end
          f = f + 1
          failed[f], packed[f], own_reasons[f] = index, word, said
        end
      end
    end
    if tracked and f > 0 then
      failing.failed = failing.failed + f
      if noted then applied.fail(noted, slab, table.concat(packed)) end
      if reason then
        outcomes.add('failed', reason, slab, facts, failed, f)
      else
        outcomes.add_each('failed', own_reasons, slab, facts, failed, f)
      end
      if one or call('BITPOS', key, 1) == -1 then
        vectors.drop(key, slab, facts.count)
        slabs.leave_bucket(slab, facts.rotation)
      end
    elseif #early_at > 0 then
      local lost = waiting.fail(slab, early_at, early_reasons)
      if lost then failing.orphaned = failing.orphaned + lost else slabs.refuse(slab) end
      dropped = lost ~= 0
      if stay and stay > 0 and lost == 0 then
        waiting.stay(slab, call('HGET', SLABS, slab), now + stay)
      end
    end
    if noted and (dropped or stay > 0 and #early_at > 0) then
      applied.emitted(noted, {slab}, dropped, now + stay)
    end
  end
end)
