-- Deliver unread orders of a pool to a worker, by priority.
--
-- KEYS[1] queues of the pool (set)   KEYS[2] workers of the pool (hash)   KEYS[3] doorbell of the pool (list)
-- Derived: the pool's streams, the nodes of what is read.
-- arg: pool, name, incarnation, slots, consumer, count, turn (for the rotation), look (entries looked at, at most),
--      reclaimAt (ms)
-- Returns {now, what, {stream, entry, order JSON} ...}; what = 'reclaim' (it is due: nothing was read), 'more' (the
-- bound was hit), 'empty' (nothing more stands there; the doorbell is silent), 'full'.
-- A lost reply leaves entries pending with this consumer; own_deliveries.lua finds them.
-- Cost: O(streams of the pool + entries looked at)
local now = clock.now_ms()
workers.hear(arg.pool, arg.name, arg.incarnation, tonumber(arg.slots), now)
if now >= tonumber(arg.reclaimAt) then
  return {int(now), 'reclaim'}
end
local count, look = tonumber(arg.count), tonumber(arg.look)
local answer = {int(now), 'empty'}
for _, stream in ipairs(deliveries.streams(KEYS[1], tonumber(arg.turn))) do
  while true do
    local room = count - (#answer - 2)
    if room <= 0 then
      answer[2] = 'full'
      return answer
    end
    if look <= 0 then
      answer[2] = 'more'
      return answer
    end
    local read = deliveries.with_group(stream, 'XREADGROUP', 'GROUP', WORKERS_GROUP, arg.consumer,
      'COUNT', int(math.min(room, look)), 'STREAMS', stream, '>')
    local entries = read and read[1] and read[1][2] or {}
    if #entries == 0 then
      break
    end
    look = look - #entries
    for _, entry in ipairs(entries) do
      if deliveries.stands(stream, entry[1], entry[2]) then
        local _, _, order = deliveries.parse(entry[2])
        answer[#answer + 1] = {stream, entry[1], order}
      end
    end
  end
end
redis.call('DEL', KEYS[3])
return answer
