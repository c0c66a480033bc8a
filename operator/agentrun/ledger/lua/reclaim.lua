-- Take over what was delivered to dead consumers of a pool and never claimed; report lost claims; remove consumers that
-- are dead and hold nothing.
--
-- KEYS[1] queues of the pool (set)
-- Derived: the pool's streams and workers, the nodes of what is found, the claims index.
-- arg: pool, consumer (the taker's), count (orders taken, at most), batch (entries looked at, at most), maxDeliveries
-- Returns {1 when the bound was hit, {stream, entry, order JSON} ...}.
-- An order delivered maxDeliveries times is reported as poison instead. A lost reply leaves what was taken pending with
-- the taker (own_deliveries.lua).
-- Cost: O(consumers + batch)
local now = clock.now_ms()
local count, look = tonumber(arg.count), tonumber(arg.batch)
local answer = {0}
fencing.report_lost(now, look)

local function is_dead(consumer)
  if consumer == CLAIMED_CONSUMER or consumer == arg.consumer then
    return false
  end
  local name, incarnation = string.match(consumer, '^(.*)/([^/]*)$')
  local worker = name and workers.read(arg.pool, name)
  return not worker or worker.incarnation ~= incarnation or not workers.is_alive(worker, now)
end

local function take_over(stream, item)
  local fields = deliveries.body(stream, item[1])
  if not deliveries.stands(stream, item[1], fields) then
    return
  end
  local uid, _, order = deliveries.parse(fields)
  if tonumber(item[4]) >= tonumber(arg.maxDeliveries) then
    nodes.end_unclaimed(nodes.read(uid), 'Poison', now)
    return
  end
  if #answer - 1 < count then
    redis.call('XCLAIM', stream, WORKERS_GROUP, arg.consumer, '0', item[1])
    answer[#answer + 1] = {stream, item[1], order}
  end
end

for _, stream in ipairs(deliveries.streams(KEYS[1], 0)) do
  for _, info in ipairs(deliveries.with_group(stream, 'XINFO', 'CONSUMERS', stream, WORKERS_GROUP)) do
    local consumer, pending = info[2], info[4]
    if is_dead(consumer) then
      if pending > 0 and look > 0 and #answer - 1 < count then
        local items = redis.call('XPENDING', stream, WORKERS_GROUP, '-', '+', int(look), consumer)
        look = look - #items
        for _, item in ipairs(items) do
          take_over(stream, item)
        end
      end
      local left = redis.call('XPENDING', stream, WORKERS_GROUP, '-', '+', '1', consumer)
      if #left == 0 then
        redis.call('XGROUP', 'DELCONSUMER', stream, WORKERS_GROUP, consumer)
      else
        answer[1] = 1
      end
    end
  end
end
return answer
