-- Extend a claim, its slots and its worker's registration.
--
-- KEYS[1] node (hash)   KEYS[2] record (hash)   KEYS[3] workers of the pool (hash)
-- Derived: its run, slots, session, the claims index.
-- arg: node, seq, token, record, pool, name, incarnation, slots
-- Returns {fenced, cancelled (1 or 0), remaining ms, lease ms}.
-- Cost: O(limits + log holders)
local now = clock.now_ms()
workers.hear(arg.pool, arg.name, arg.incarnation, tonumber(arg.slots), now)
local node = nodes.read(arg.node)
local record = records.read(arg.record, now)
local run_state = node.run and redis.call('HGET', key('run', node.run), 'state')
local cancelled = run_state ~= 'open' and 1 or 0
if not nodes.holds_claim(node, arg.seq, arg.token, record) then
  return {1, cancelled, '0', '0'}
end
nodes.extend_claim(node, now)
if record then
  redis.call('HSET', KEYS[2], 'lease', node.lease)
end
slots.take(slots.of(node, node.attempt), node, node.attempt, now, true)
return {0, cancelled, int(math.max(num(node.deadline) - now, 0)), int(conf.leaseMs)}
