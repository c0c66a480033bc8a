-- Refuse claims and dispatches of the run from now on (its recoveries excepted).
--
-- KEYS[1] run (hash)
-- arg: none
-- Returns 1, or 0 when the run is unknown or finished (closed anyway).
-- Cost: O(1)
local state = redis.call('HGET', KEYS[1], 'state')
if not state or state == 'finished' then
  return 0
end
redis.call('HSET', KEYS[1], 'state', 'cancelled')
return 1
