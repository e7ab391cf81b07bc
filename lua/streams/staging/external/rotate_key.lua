-- Gives the stamps of an external stream a new key. The key before it is accepted further; the one before
-- that is no longer, so its open segments are counted first, page by page: the last page rotates.
--
-- KEYS  1 subscriptions  hash (streams/includes/streams.lua)
--       2 entries        stream
-- ARGV  1 number  of the present key, as the caller knows it
--       2 key     the new one, 64 hexadecimal digits
--       3 start   of the page, as XRANGE takes it
--       4 open    segments of the key before that the pages before had
--       5 how     force: rotates whatever is open; count: only counts; or ""
-- Returns the number of such segments so far, and the id of the last entry of the page; '' after the last
-- page; and 1 if the key was rotated, otherwise 0. An error ACKER where nothing has changed: UNKNOWN it is no
-- external stream, ROTATED its key has another number.
-- Bounded: a page has 1,000 entries.
local call = redis.call
local PAGE = 1000
local kind = call('HGET', KEYS[1], 'external')
if not kind then return redis.error_reply('ACKER UNKNOWN') end
if kind ~= ARGV[1] then return redis.error_reply('ACKER ROTATED') end
local number, open = tonumber(kind), tonumber(ARGV[4])
local before = string.format('%.0f', (number - 1) % 256)
if call('HEXISTS', KEYS[1], 'stamp_key:' .. before) == 1 then
  local page = call('XRANGE', KEYS[2], ARGV[3], '+', 'COUNT', PAGE)
  for i = 1, #page do
    local fields = page[i][2]
    for f = 1, #fields, 2 do
      if fields[f] == 'key' and fields[f + 1] == before then open = open + 1 end
    end
  end
  if #page == PAGE then return {open, page[PAGE][1], 0} end
end
if ARGV[5] == 'count' or (open > 0 and ARGV[5] ~= 'force') then return {open, '', 0} end
local new = string.format('%.0f', (number + 1) % 256)
call('HDEL', KEYS[1], 'stamp_key:' .. before)
call('HSET', KEYS[1], 'external', new, 'stamp_key:' .. new, ARGV[2])
return {open, '', 1}
