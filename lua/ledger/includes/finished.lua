-- The finished trees of a slab, for updates of whole slabs. A hash keeps a mask for each slab with many
-- finished trees: a word of ones for each of these trees, and zero for the others. So the server's own loops
-- distinguish trees finished before from trees that finish now, and Lua walks only over changed words.
-- @needs shard
--
-- A mask is a hint: it may lack a finished tree (after a fail, or an update of few trees). It names no
-- pending tree, because a finished tree stays finished until the slab goes, and the mask goes with its
-- vector.
-- Most finished trees outside the mask that are walked over one by one: a 32nd of a slab.
local MASK_SHARE = 32
local MASK_WORD = rep('\255', 8)
local finished = lazy(function(finished)
  -- The masks of slabs, false where there is none.
  function finished.masks(names)
    return call('HMGET', FINISHED, unpack(names))
  end

  -- The number of nonzero words of the vector in SCRATCH, which has `bits` set bits. The vector is zero where
  -- the mask in OPERAND is zero. A word has some 32 bits: few words are searched one by one; for many words
  -- the zero words of the mask are searched.
  function finished.late(mask, bits)
    local n, at = 0, 0
    if bits > #mask / 8 then
      n = call('BITCOUNT', OPERAND) / 64
      call('BITOP', 'NOT', OPERAND, OPERAND)
      call('BITOP', 'OR', OPERAND, OPERAND, SCRATCH)
      local _, zeros = words.zeros(call('GET', OPERAND))
      call('SET', OPERAND, mask)
      return n - zeros
    end
    while at < #mask do
      local first = call('BITPOS', SCRATCH, 1, at)
      if first == -1 then break end
      n = n + 1
      at = floor(first / 64) * 8 + 8
    end
    return n
  end

  -- Adds trees (ascending indexes) to the mask of a slab of `count`, if they are worth it.
  function finished.note(slab, mask, count, indexes)
    local n = #indexes
    if n * MASK_SHARE <= count then return end
    mask = mask or words.none(count)
    local pieces, p, at = {}, 0, 1
    for i = 1, n do
      local word = indexes[i] * 8 + 1
      if word > at then
        p = p + 1
        pieces[p] = sub(mask, at, word - 1)
      end
      p = p + 1
      pieces[p] = MASK_WORD
      at = word + 8
    end
    pieces[p + 1] = sub(mask, at)
    call('HSET', FINISHED, slab, table.concat(pieces))
  end
end)
