-- Drops the pieces of a slab of `count` trees, if there are any; returns their possible number.
-- @needs shard, id_pieces
local function drop_id_pieces(slab, count)
  if count <= id_pieces.TREES or call('HSTRLEN', MESSAGE_IDS, slab) > 0 then return 0 end
  local fields = {}
  for piece = 0, math.ceil(count / id_pieces.TREES) - 1 do
    fields[piece + 1] = id_pieces.field(slab, piece)
  end
  call('HDEL', MESSAGE_IDS, unpack(fields))
  return #fields
end
