-- Send an order out: seq - 1 becomes seq, an earlier entry goes, slots and hold are taken, the stream gets the order.
--
-- KEYS[1] node (hash)   KEYS[2] run (hash)   KEYS[3] order stream   KEYS[4] queues of the pool (set)
-- KEYS[5] doorbell of the pool (list)   KEYS[6] runnodes (set)
-- Derived: the slots' keys; the waiters of the record of an earlier order; with kind Recover the node's record and its
--   waiters; the stream of an earlier entry.
-- arg: node, run, path, owner (<ns>/<run>/<node>), attempt, seq, epoch, kind, request, tool, pool, session (key or ''),
--      side, digest, record, scope, window, duplicate, ownKey, timeout, claimWithin, runRemaining, rate (0: none),
--      keep (ms that the queue's keys outlive this; 0: for ever), sending (number of it under this epoch; 0: none), hold {micros, tokens, calls}, budget (the node's, the
--      same, -1 unlimited), limits [[name, limit], ...]
-- ARGV[3] the order, JSON
-- Returns {refusal or '', limit}. Equal orders (seq, request, kind) are answered equally, in a newer epoch as well. A
-- late copy of a sending that found no slot or no budget is stale, where the order is Once.
-- Cost: O(limits + log holders), or O(waiters) where the order before was about another record
local now = clock.now_ms()
if not is_open() then
  return {'LedgerClosed', ''}
end
if tonumber(arg.epoch) < num(redis.call('HGET', conf.meta, 'epoch')) then
  return {'StaleEpoch', ''}
end

local node = nodes.read(arg.node)
local recovers = arg.kind == 'Recover'
local seq = tonumber(arg.seq)
if num(node.seq) == seq and node.request == arg.request and node.kind == arg.kind and node.state ~= 'withdrawn' then
  if tonumber(arg.epoch) > num(node.epoch) then
    redis.call('HSET', KEYS[1], 'epoch', arg.epoch)
  end
  return {'', ''}
end
local sending = tonumber(arg.sending)
local was_refused = node.refused_epoch == arg.epoch and sending <= num(node.refused_sending)
if num(node.seq) ~= seq - 1 or (sending > 0 and was_refused) then
  return {'StaleSeq', ''}
end
-- A dead claim does not stand in the way of its own recovery.
if node.state == 'claimed' and not (recovers and not lease_lives(node.lease, now)) then
  return {'Claimed', ''}
end
local run = read_hash(KEYS[2])
if not run or run.state == 'finished' or (run.state == 'cancelled' and not recovers) then
  return {'RunClosed', ''}
end
if money.book_late(node, KEYS[2]) then
  run = read_hash(KEYS[2])
end
if not recovers then
  local refusal, limit = 'NoSlot', slots.full(arg.limits, node, arg.attempt, now, false)
  if not limit then
    refusal, limit = money.refusal(run, node, arg.hold, arg.budget)
  end
  if limit and sending > 0 and arg.side == 'Once' then
    -- Whoever is refused may let the node end. A copy that arrives later must not find what is missing now.
    write_hash(KEYS[1], node, {refused_epoch = arg.epoch, refused_sending = arg.sending})
    redis.call('SADD', KEYS[6], arg.node)
  end
  if limit then
    return {refusal, limit}
  end
end

if node.state == 'claimed' then
  fencing.fence(node, now, false)
elseif node.state == 'queued' then
  nodes.close_unclaimed(node, 'withdrawn', false)
else
  money.give_back(node)
end
if node.record and node.record ~= arg.record then
  records.leave(node.record, arg.node) -- another tool or other params: nothing is waited for there any more
end
if node.seq then
  forget(KEYS[1], node, 'token', 'worker', 'incarnation', 'heard', 'lease', 'deadline', 'report', 'gate_token',
    'gate_kind', 'adopted', 'lost', 'found', 'stream', 'entry')
end
write_hash(KEYS[1], node, {
  run = arg.run, path = arg.path, owner = arg.owner, seq = arg.seq, epoch = arg.epoch, attempt = arg.attempt,
  kind = arg.kind, request = arg.request, tool = arg.tool, pool = arg.pool, session = arg.session, side = arg.side,
  digest = arg.digest, record = arg.record, scope = arg.scope, window = arg.window, duplicate = arg.duplicate,
  own_key = arg.ownKey, timeout = arg.timeout, claim_by = int(now + tonumber(arg.claimWithin)),
  run_deadline = int(now + tonumber(arg.runRemaining)), rate = arg.rate, state = 'queued',
})
if not recovers then
  money.hold(node, arg.hold)
  write_hash(KEYS[1], node, {['slots:' .. arg.attempt] = cjson.encode(arg.limits)})
end
slots.take(recovers and slots.of(node, arg.attempt) or arg.limits, node, arg.attempt, now, false)

if redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('XGROUP', 'CREATE', KEYS[3], WORKERS_GROUP, '0', 'MKSTREAM')
end
local entry = redis.call('XADD', KEYS[3], '*', 'node', arg.node, 'seq', arg.seq, 'order', ARGV[3])
write_hash(KEYS[1], node, {stream = KEYS[3], entry = entry})
redis.call('SADD', KEYS[4], KEYS[3])
redis.call('SADD', KEYS[6], arg.node)
if redis.call('RPUSH', KEYS[5], '1') > conf.bellLength then
  redis.call('LPOP', KEYS[5])
end
if tonumber(arg.keep) > 0 then
  for at = 3, 5 do
    redis.call('PEXPIRE', KEYS[at], arg.keep)
  end
end
return {'', ''}
