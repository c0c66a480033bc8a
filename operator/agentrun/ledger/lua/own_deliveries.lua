-- Return what has been delivered to this consumer and not been claimed: after a reply of take_orders was lost.
--
-- KEYS[1] queues of the pool (set)
-- Derived: the pool's streams, the nodes of what is found.
-- arg: consumer, count
-- Returns {{stream, entry, order JSON} ...}; the deliveries are not counted again.
-- Cost: O(streams of the pool + count)
local answer = {}
local count = tonumber(arg.count)
for _, stream in ipairs(deliveries.streams(KEYS[1], 0)) do
  local pending = deliveries.with_group(stream, 'XPENDING', stream, WORKERS_GROUP, '-', '+', arg.count, arg.consumer)
  for _, item in ipairs(pending) do
    local fields = deliveries.body(stream, item[1])
    if deliveries.stands(stream, item[1], fields) and #answer < count then
      local _, _, order = deliveries.parse(fields)
      answer[#answer + 1] = {stream, item[1], order}
    end
  end
end
return answer
