-- The place of a slab's message ids: packed in the field `slab` of MESSAGE_IDS. If these would be many bytes
-- (slabs.py), they are kept in pieces of so many trees, in separate fields, and the field `slab` is empty. So
-- no call moves more than a piece at a time.
local id_pieces = lazy(function(id_pieces)
  function id_pieces.field(slab, piece)
    return slab .. string.char(piece)
  end

  -- The number of trees of a piece of a slab of `count` trees.
  function id_pieces.trees(count, piece)
    return math.min(id_pieces.TREES, count - id_pieces.TREES * piece)
  end

  -- Splits ascending indexes (a list) by pieces: calls what(piece, from, to, indexes in the piece).
  function id_pieces.by_piece(indexes, what)
    local from = 1
    while from <= #indexes do
      local piece, to, own = math.floor(indexes[from] / id_pieces.TREES), from, {}
      while indexes[to] and math.floor(indexes[to] / id_pieces.TREES) == piece do
        own[#own + 1] = indexes[to] % id_pieces.TREES
        to = to + 1
      end
      what(piece, from, to - 1, own)
      from = to
    end
  end
end)
id_pieces.TREES, id_pieces.MOST = 256, 16
