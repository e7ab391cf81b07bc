-- The packed form of messages that wait for the track of a slab (waiting.lua defines and bounds them).
--
-- Words beyond the slab's vector are pairs (index as u16, word), ascending.
-- Failures are groups of one reason each: n, the number of trees (u16), length (u16), n indexes (u16 each),
-- reason.
local early = lazy(function(early)
  early.PAIR = 10

  -- The vector with the pairs of its first `length` words in it, extended to these words if there are such
  -- pairs; and the remaining pairs. nil if they cannot be read. At most one step for each pair.
  function early.merge(vector, packed, length)
    if packed == '' then return vector, '' end
    local pieces, n, next_word, at = {vector}, 1, #vector / 8, 1
    while at <= #packed do
      if at + 9 > #packed then return nil end
      local index = struct.unpack('<I2', packed, at)
      if index < next_word or index >= 4096 then return nil end
      if index >= length then break end
      pieces[n + 1] = string.rep('\0', 8 * (index - next_word))
      pieces[n + 2] = string.sub(packed, at + 2, at + 9)
      n, next_word, at = n + 2, index + 1, at + early.PAIR
    end
    return table.concat(pieces), string.sub(packed, at)
  end

  -- Failures as a list of {indexes = packed, reason =}, up to an unreadable one, and true if there is such a
  -- one.
  -- At most one for each of 4,096 trees.
  function early.groups(packed)
    local groups, at = {}, 1
    while at <= #packed do
      if at + 3 > #packed then return groups, true end
      local n, length = struct.unpack('<I2I2', packed, at)
      local from = at + 4 + 2 * n
      local indexes = string.sub(packed, at + 4, from - 1)
      at = from + length
      if at - 1 > #packed then return groups, true end
      groups[#groups + 1] = {indexes = indexes, reason = string.sub(packed, from, at - 1)}
    end
    return groups, false
  end

  -- The same as index -> reason; the first reason of a tree stands. At most 4,096 steps.
  function early.reasons(groups)
    local found = {}
    for _, group in ipairs(groups) do
      for at = 1, #group.indexes, 2 do
        local index = struct.unpack('<I2', group.indexes, at)
        found[index] = found[index] or group.reason
      end
    end
    return found
  end

  -- Groups, packed.
  function early.pack(groups)
    local pieces = {}
    for g, group in ipairs(groups) do
      pieces[g] = struct.pack('<I2I2', #group.indexes / 2, #group.reason) .. group.indexes .. group.reason
    end
    return table.concat(pieces)
  end
end)
