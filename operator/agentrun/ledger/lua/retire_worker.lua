-- Say that a worker is gone. One that a later incarnation has replaced changes nothing.
--
-- KEYS[1] workers of the pool (hash)
-- arg: pool, name, incarnation, slots
-- Returns 1.
-- Cost: O(1)
local worker = workers.read(arg.pool, arg.name)
if not worker or worker.incarnation == arg.incarnation then
  workers.write(arg.pool, arg.name, {heard = clock.now_ms(), slots = tonumber(arg.slots), retired = true,
    version = worker and worker.version or int(conf.contractVersion), incarnation = arg.incarnation})
end
return 1
