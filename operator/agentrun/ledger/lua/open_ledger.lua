-- Prepare the install's layout and the report streams of the given namespaces; open the gate of a new ledger.
--
-- KEYS[1] meta (hash)   KEYS[2] namespaces (set)   KEYS[3..] report streams, in the order of the namespaces
-- arg: generation (a fresh id, used if there is none), formatVersion, namespaces (list), replid (of the server now)
-- Returns {generation, formatVersion of the ledger}; a newer format is returned without any change.
-- A ledger without a generation is taken for a new one and opened: whoever has resources to rebuild it from looks first.
-- Cost: O(namespaces)
local format = redis.call('HGET', KEYS[1], 'formatVersion')
if format and tonumber(format) > tonumber(arg.formatVersion) then
  return {redis.call('HGET', KEYS[1], 'generation') or '', format}
end
if not redis.call('HGET', KEYS[1], 'generation') then
  redis.call('HSET', KEYS[1], 'generation', arg.generation, 'open', '1')
  redis.call('HSETNX', KEYS[1], 'epoch', '0')
end
redis.call('HSETNX', KEYS[1], 'open', '1')
redis.call('HSET', KEYS[1], 'formatVersion', arg.formatVersion, 'replid', arg.replid)
for i, namespace in ipairs(arg.namespaces) do
  redis.call('SADD', KEYS[2], namespace)
  redis.pcall('XGROUP', 'CREATE', KEYS[2 + i], 'scheduler', '0', 'MKSTREAM') -- BUSYGROUP: it is there
end
return {redis.call('HGET', KEYS[1], 'generation'), arg.formatVersion}
