-- Lanes, for claim_segments.lua, whose variables it uses. A segment of a stream that is read fairly
-- has a lane, 0 to 3, by the number of rows of its key that were written lately (fairness.py); an entry
-- without a lane has 0. A subscription that reads fairly has a cursor in each lane, in the field lanes:<n> of
-- the stream's hash: "<cursor of lane 0> ... <of lane 3> <the lane that is served first next time>". Its
-- cursor:<n> is the lowest of them. Segments that were given back form lane 4, which is served last.
-- Each lane has a quarter of a batch, and then the rest. The first lane may have a segment of any size, so no
-- lane waits for ever.

-- Parses an entry: id, record, rows, bundle, lane; nil if it is not for the subscription, or cannot be read:
-- it is passed over, and its trees expire.
local function read_entry(one)
  local id, fields = one[1], one[2]
  local of = tonumber(fields[4])
  if not (of and fields[6] and string.find(',' .. fields[6] .. ',', ',' .. slot .. ',', 1, true)) then
    return nil
  end
  local bundle = fields[7] == 'bundle' and fields[8] or nil
  local lane = fields[7] == 'lane' and fields[8] or fields[9] == 'lane' and fields[10]
  return id, fields[2], of, bundle, math.min(3, tonumber(lane or 0) or 0)
end

local function below(one, other)
  local ms, number = string.match(one, '^(%d+)%-(%d+)$')
  local other_ms, other_number = string.match(other, '^(%d+)%-(%d+)$')
  ms, other_ms = tonumber(ms), tonumber(other_ms)
  return ms < other_ms or (ms == other_ms and tonumber(number) < tonumber(other_number))
end

-- The next segment of a queue: entry, record, rows, bundle, begun; nil if none is at hand. Segments of other
-- lanes are passed over.
local function next_of(queue)
  while queue.found[queue.k] do
    local one = queue.found[queue.k]
    if queue.lane == 4 then
      return one[2][2], one[2][4], tonumber(one[2][6]) or 0, one[2][8], one[2][10]
    end
    local id, record, of, bundle, lane = read_entry(one)
    if id and lane == queue.lane then return id, record, of, bundle end
    queue.cursor, queue.k = one[1], queue.k + 1
  end
end

local function members_of(of, bundle)
  local after, rows_of = string.match(bundle or '', '^(%d+) (%d+)$')
  return tonumber(after or 0) + 1, tonumber(rows_of) or of, after ~= nil
end

-- Delivers segments of a queue up to so many rows, bytes and segments, or until the batch is full. Bounded by
-- the segments at hand.
local function serve(queue, own_rows, own_bytes, own_most)
  while true do
    local id, record, of, bundle, begun = next_of(queue)
    if not id then return true end
    local members, rows_of, more_of_it = members_of(of, bundle)
    local first = queue.inside or given == 0
    if not (first or queue.k + members - 1 <= #queue.found) then return false end
    local size = first and 0 or sizes(queue.found, queue.k, members, queue.lane == 4 and 4 or 2)
    if not first and not (
      given + members <= most and rows + rows_of <= most_rows and bytes + size <= most_bytes and
      queue.given + members <= own_most and queue.rows + rows_of <= own_rows and
      queue.bytes + size <= own_bytes) then return false end
    queue.inside = more_of_it
    give(id, record, of, bundle, begun)
    queue.bytes = queue.bytes + size_of(record)
    local entry = queue.found[queue.k][1]
    if queue.lane == 4 then redis.call('XDEL', KEYS[3], entry) end
    queue.cursor, queue.k = entry, queue.k + 1
    queue.given, queue.rows = queue.given + 1, queue.rows + of
  end
end

-- Delivers segments lane by lane; returns true if there may be more. For a lane with unknown content it only
-- reads on.
local function fairly(stored)
  local queues, fetched, places, unknown = {}, {}, 0, false
  for position in string.gmatch(stored, '%d+%-%d+') do -- 4
    if not fetched[position] then places = places + 1 end
    fetched[position] = {}
    queues[#queues + 1] = {lane = #queues, cursor = position, k = 1, rows = 0, bytes = 0, given = 0}
  end
  local count = math.floor(500 / places)
  local function fetch(queue, most_of)
    queue.found = redis.call('XRANGE', KEYS[1], '(' .. queue.cursor, ARGV[7], 'COUNT', most_of)
    queue.k, queue.more = 1, #queue.found == most_of
  end
  for _, queue in ipairs(queues) do
    local position = queue.cursor
    if fetched[position].found then
      queue.found, queue.more = fetched[position].found, fetched[position].more
    else
      fetch(queue, count)
      fetched[position] = {found = queue.found, more = queue.more}
    end
    local _, _, of, bundle = next_of(queue)
    -- A bundle is delivered whole, and has 451 members at most.
    if of and queue.more and queue.k + members_of(of, bundle) - 1 > #queue.found then fetch(queue, 500) end
    unknown = unknown or (not of and queue.more)
  end
  local turn, left = tonumber(string.match(stored, '%d$')), false
  if not unknown then
    local back = redis.call('XRANGE', KEYS[3], '-', '+', 'COUNT', 500)
    queues[5] = {lane = 4, found = back, k = 1, rows = 0, bytes = 0, given = 0, more = #back == 500}
    local order, following = {}, turn
    for k = 0, 4 do order[k + 1] = queues[(turn + k) % 5 + 1] end
    local share_rows, share = math.max(1, math.floor(most_rows / 4)), math.max(1, math.floor(most / 4))
    local share_bytes = math.max(1, math.floor(most_bytes / 4))
    for _, queue in ipairs(order) do
      local first = given == 0
      serve(queue, share_rows, share_bytes, share)
      if first and given > 0 then following = (queue.lane + 1) % 5 end
    end
    for _, queue in ipairs(order) do
      if not serve(queue, most_rows, most_bytes, most) then left = true end
    end
    turn = following
    if queues[5].given > 0 and redis.call('XLEN', KEYS[3]) == 0 then redis.call('UNLINK', KEYS[3]) end
    for k = 1, 5 do left = left or queues[k].more end
  end
  local words, lowest = {}, queues[1].cursor
  for lane = 1, 4 do
    words[lane] = queues[lane].cursor
    if below(words[lane], lowest) then lowest = words[lane] end
  end
  words[5] = turn
  local new = table.concat(words, ' ')
  if new ~= stored then
    redis.call('HSET', KEYS[2], 'lanes:' .. slot, new, 'cursor:' .. slot, lowest)
  end
  return left or unknown
end
