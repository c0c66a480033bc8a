-- Add up the slots that live workers of a pool announce.
--
-- KEYS[1] workers of the pool (hash)
-- arg: pool
-- Returns the sum.
-- Cost: O(workers of the pool)
local now, sum = clock.now_ms(), 0
for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
  local worker = workers.read(arg.pool, name)
  if worker and workers.is_alive(worker, now) then
    sum = sum + worker.slots
  end
end
return sum
