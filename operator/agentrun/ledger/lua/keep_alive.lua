-- Extend a worker's registration.
--
-- KEYS[1] workers of the pool (hash)
-- arg: pool, name, incarnation, slots
-- Returns 1.
-- Cost: O(1)
workers.hear(arg.pool, arg.name, arg.incarnation, tonumber(arg.slots), clock.now_ms())
return 1
