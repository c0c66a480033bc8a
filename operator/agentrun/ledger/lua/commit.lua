-- End an attempt or a recovery: record, cost, audit, report, acknowledge, slots, hold.
--
-- KEYS[1] node (hash)   KEYS[2] record (hash)
-- Derived: its run, slots, stream, waiters and their nodes, session, audit, the claims index, the reports.
-- arg: node, run, seq, attempt, token, record, kind, side, status (of the record), effect, reason,
--      usage {micros, tokens, calls}, estimated (1 or 0), scope, window, digest, owner
-- ARGV[3] the outcome, JSON
-- Returns 'Committed' (now or before under this token) or 'Fenced'. A fenced one is kept as evidence for the recovery;
-- a final cost of it replaces the estimate once.
-- Cost: O(limits + waiters)
local now = clock.now_ms()
local node = nodes.read(arg.node)
if node['done:' .. arg.seq] == arg.token then
  return 'Committed'
end
local record = records.read(arg.record, now)
local recovers = arg.kind == 'Recover'
local used_nothing = arg.usage.micros == '0' and arg.usage.tokens == '0' and arg.usage.calls == '0'

if not nodes.holds_claim(node, arg.seq, arg.token, record) then
  node.run = node.run or arg.run
  if not recovers then
    redis.call('HSET', KEYS[1], 'evidence', ARGV[3], 'evidence_attempt', arg.attempt)
    if record and record.exec_token == arg.token then
      redis.call('HSET', KEYS[2], 'evidence', ARGV[3])
    end
    if arg.estimated == '0' and not (arg.effect == 'Unknown' and used_nothing) then
      fencing.correct_cost(node, arg.attempt, arg.seq, arg.usage, ARGV[3], now)
      money.settle(node, arg.attempt, arg.usage, false)
    end
  end
  reports.audit(node, 'FencedCommit', now, {'ofSeq', arg.seq, 'effect', arg.effect, 'reason', arg.reason,
    'micros', arg.usage.micros})
  return 'Fenced'
end

if recovers then
  -- A recovery tells what the attempt cost only where it knows: nothing, or what the lookup said.
  if arg.effect == 'NotExecuted' or (arg.effect == 'Executed' and not used_nothing and arg.estimated == '0') then
    money.settle(node, arg.attempt, arg.usage, false, true)
  end
elseif arg.effect == 'Unknown' and used_nothing then
  money.settle(node, arg.attempt, nil, true)
else
  money.settle(node, arg.attempt, arg.usage, arg.estimated == '1')
end
money.give_back(node)

if not record then -- the server lost it (eviction, a deleted key): the node still proves the claim
  record = {}
  records.change(arg.record, record, {owner = arg.owner, owner_run = arg.run, owner_node = arg.node,
    attempt = arg.attempt, digest = arg.digest, side = arg.side, scope = arg.scope, window = arg.window,
    first = int(now)})
end
records.settle(arg.record, record, arg.status, ARGV[3], node.uid, now)

nodes.drop_claim(node)
nodes.drop_entry(node.stream, node.entry)
slots.free(node, node.attempt, true)
write_hash(KEYS[1], node, {state = 'ended', ['done:' .. arg.seq] = arg.token})
reports.audit(node, 'Committed', now, {'worker', node.worker or '', 'kind', arg.kind, 'effect', arg.effect,
  'reason', arg.reason, 'status', arg.status, 'micros', arg.usage.micros})
reports.send(node, 'Committed', now, {worker = node.worker, outcome = ARGV[3], recordVersion = record.version})
if redis.call('HGET', key('run', node.run), 'state') == 'finished' then
  fencing.let_go(node, record, now)
end
return 'Committed'
