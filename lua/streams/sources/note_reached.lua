-- Notes how far a spout has come in partitions of its source, before it tracks what it has read there.
--
-- KEYS  1 reached  hash: `p:` and a partition -> spout, id of the topic, offset below which all is done with
--                  the time of the note behind an @, and marks: `time position open` each. A mark says that
--                  the records below the position, from the mark before on, were first tracked after that
--                  time (ms), and so many are open.
--                  `s:` and a spout -> the spout, which notes its positions. `p:/old/` and a spout -> its
--                  open records in partitions that nobody has noted for a long time, as one mark
--       2 config   of the topology: nothing is noted without it
-- ARGV  1 spout
--       ... partition, topic, anew, done, position, open  of each: its field; the topic's id, or `-`; 1 to
--           begin anew; the offset below which all is done; the position after the last record that was
--           read; and of known marks in order, none above it, as `position open ...`: the open records from
--           the known mark before on
-- Returns the positions of each partition's marks, as text; nothing where the topology is not there.
-- Bounded by the caller: at most 500 partitions a call; a partition has at most 64 marks.
local call, MOST, KEPT, LOOKS = redis.call, 64, 30 * 86400000, 4
local instant = call('TIME')
local now = instant[1] * 1000 + math.floor(instant[2] / 1000)
local function whole(number) return string.format('%.0f', number) end
local answers = {}
if call('EXISTS', KEYS[2]) == 0 then return answers end
call('HSET', KEYS[1], 's:' .. ARGV[1], ARGV[1] .. ' ')
for i = 2, #ARGV, 6 do
  local topic, done, position = ARGV[i + 1], tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4])
  local _, before, done_before, rest =
    string.match(call('HGET', KEYS[1], ARGV[i]) or '', '^(%S+) (%S+) (%d+)@?%d*(.*)$')
  local another = before and topic ~= '-' and before ~= '-' and topic ~= before
  local marks, known = {}, string.gmatch(ARGV[i + 5], '(%d+) (%d+)')
  local at_known, open = known()
  if before and not another and ARGV[i + 2] ~= '1' then
    done = math.max(done, tonumber(done_before))
    if topic == '-' then topic = before end
    for time, at, count in string.gmatch(rest, ' (%d+) (%d+) (%d+)') do
      local sum, upto = 0, nil
      while at_known and tonumber(at_known) <= tonumber(at) do
        sum, upto = sum + tonumber(open), at_known
        at_known, open = known()
      end
      if tonumber(at) > done then marks[#marks + 1] = {time, at, upto == at and whole(sum) or count} end
    end
  end
  local last = #marks > 0 and tonumber(marks[#marks][2]) or done
  if position > last then marks[#marks + 1] = {whole(now), whole(position), whole(position - last)} end
  while #marks > MOST do
    local first = table.remove(marks, 1)
    marks[1] = {first[1], marks[1][2], whole(tonumber(first[3]) + tonumber(marks[1][3]))}
  end
  local written, positions = {ARGV[1], topic, whole(done) .. '@' .. whole(now)}, {}
  for k, mark in ipairs(marks) do
    written[#written + 1] = table.concat(mark, ' ')
    positions[k] = mark[2]
  end
  call('HSET', KEYS[1], ARGV[i], table.concat(written, ' '))
  answers[#answers + 1] = table.concat(positions, ' ')
end
-- Of groups that nobody reads any more, the open records stay alone: a few fields are looked at in each call.
for _, name in ipairs(call('HRANDFIELD', KEYS[1], LOOKS)) do
  local spout, topic, done, noted, rest =
    string.match(call('HGET', KEYS[1], name), '^(%S+) (%S+) (%d+)@?(%d*)(.*)$')
  if spout and string.sub(name, 1, 2) == 'p:' and string.sub(name, 1, 7) ~= 'p:/old/' then
    if noted == '' then
      call('HSET', KEYS[1], name, spout .. ' ' .. topic .. ' ' .. done .. '@' .. whole(now) .. rest)
    elseif now - tonumber(noted) > KEPT then
      local old = 'p:/old/' .. spout
      local first, sum = string.match(call('HGET', KEYS[1], old) or '', ' (%d+) 1 (%d+)$')
      first, sum = tonumber(first) or now, tonumber(sum) or 0
      for time, at, count in string.gmatch(rest, ' (%d+) (%d+) (%d+)') do
        if tonumber(at) > tonumber(done) then
          first, sum = math.min(first, tonumber(time)), sum + tonumber(count)
        end
      end
      if sum > 0 then
        local open_since = whole(first) .. ' 1 ' .. whole(sum)
        call('HSET', KEYS[1], old, spout .. ' - 0@' .. whole(now) .. ' ' .. open_since)
      end
      call('HDEL', KEYS[1], name)
    end
  end
end
return answers
