-- Count the orders that stand unclaimed in streams.
--
-- KEYS[..] order streams
-- arg: none
-- Returns one count per stream.
-- Cost: O(streams)
local answer = {}
for i, stream in ipairs(KEYS) do
  local claimed = 0
  if redis.call('EXISTS', stream) == 1 then
    local summary = redis.pcall('XPENDING', stream, WORKERS_GROUP)
    for _, consumer in ipairs(not summary.err and summary[4] or {}) do
      if consumer[1] == CLAIMED_CONSUMER then
        claimed = tonumber(consumer[2])
      end
    end
  end
  answer[i] = math.max(redis.call('XLEN', stream) - claimed, 0)
end
return answer
