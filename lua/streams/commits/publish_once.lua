-- Publishes one segment of a writer that has no commits: at once, and once.
--
-- KEYS  1 entries        stream
--       2 subscriptions  hash (streams/includes/streams.lua)
--       3 payload        string
--       4 unacked        hash (lua/streams/log/note_segments.lua)
--       5 marker         string: the segment was published
-- ARGV  1 record (acker/streams/log/segments.py), 2 rows, 3 bytes
--       4 slots          as "7,9"
--       5 payload
--       6 ttl            seconds for which the marker is kept
--       7 lane           0 to 3 (streams/includes/lanes.lua)
--       8 next           empty; for rows without trees, which no spout would write again: a random number
--                        for the next subscription. If all their subscriptions are gone, they go to the
--                        present subscriptions, or to the next one
-- Returns 1, or 0 if the segment was published before; then its slots that were dropped before its
-- publication (stream.gone), whose tuples the caller ends. A segment without a subscription is kept only
-- until its trees have failed.
--- @include "streams/includes/streams"
local unreadable = stream.unreadable(KEYS[2])
if unreadable then return unreadable end
if not call('SET', KEYS[5], 1, 'EX', ARGV[6], 'NX') then return {0, stream.gone(KEYS[4])} end
local slots = ARGV[8] == '' and ARGV[4] or stream.renewed(KEYS[2], ARGV[4], ARGV[8])
if stream.publish(KEYS[1], KEYS[2], KEYS[4], ARGV[1], ARGV[2], ARGV[3], slots, ARGV[7]) then
  call('SET', KEYS[3], ARGV[5])
else
  call('SET', KEYS[3], ARGV[5], 'EX', ARGV[6])
  call('EXPIRE', KEYS[4], ARGV[6])
end
return {1, stream.gone(KEYS[4])}
