-- Announce a worker and its slots. Earlier incarnations of its name are thereby proven gone.
--
-- KEYS[1] workers of the pool (hash)
-- arg: pool, name, incarnation, slots, version
-- Returns 1.
-- Cost: O(workers of the pool), which also forgets those that have been gone for a day
local now = clock.now_ms()
workers.prune(arg.pool, now)
workers.write(arg.pool, arg.name, {heard = now, slots = tonumber(arg.slots), retired = false, version = arg.version,
  incarnation = arg.incarnation})
return 1
