-- Pass the gate: the last step before the side effect.
--
-- KEYS[1] node (hash)
-- Derived from the node's stored order: its run, record, waiters, rate, slots, session, audit; the claims index; the
-- pool's workers; the reports.
-- arg: node, seq, token, worker, incarnation, stream, entry
-- Returns {verdict, ...}:
--   Execute, remaining ms, lease ms
--   Recover, remaining ms, lease ms, record as found (flat JSON list or ''), 1 if its worker is gone, evidence JSON or ''
--   Reported, report kind    Stale    WaitRate, wait ms    LedgerClosed
-- The same token gets the same answer again while the order has not moved on.
-- Cost: O(limits + log holders + waiters); the record's and node's few dozen fields are read whole.
local now_us = clock.now_us()
local now = math.floor(now_us / 1000)
if not is_open() then
  return {'LedgerClosed'}
end

local node = nodes.read(arg.node)
local recovers = node.kind == 'Recover'

local function granted()
  local remaining = math.max(num(node.deadline) - now, 0)
  local lease = math.max(num(node.lease) - now, 0)
  if not recovers then
    return {'Execute', int(remaining), int(lease)}
  end
  local found = cjson.decode(node.found)
  return {'Recover', int(remaining), int(lease), found.record, found.gone, found.evidence}
end

if node.seq ~= arg.seq then
  nodes.drop_entry(arg.stream, arg.entry)
  return {'Stale'}
end
if node.state == 'claimed' then
  if node.token == arg.token then
    return granted()
  end
  redis.pcall('XCLAIM', arg.stream, WORKERS_GROUP, CLAIMED_CONSUMER, '0', arg.entry, 'JUSTID')
  return {'Stale'}
end
if node.state ~= 'queued' then
  if node.gate_token == arg.token then
    return {'Reported', node.gate_kind}
  end
  nodes.drop_entry(arg.stream, arg.entry)
  return {'Stale'}
end

local run_state = redis.call('HGET', key('run', node.run), 'state')
if not run_state or run_state == 'finished' or (run_state == 'cancelled' and not recovers) then
  nodes.close_unclaimed(node, 'closed', true)
  return {'Stale'}
end

local function report(kind, more)
  more = more or {}
  more.worker = arg.worker
  nodes.end_unclaimed(node, kind, now, more, arg.token)
  return {'Reported', kind}
end

if now >= num(node.claim_by) or (not recovers and now >= num(node.run_deadline)) then
  return report('DeadlinePassed')
end

local record = records.read(node.record, now)
local about = record and {holder = record.owner, recordVersion = record.version} or {}
if record and record.digest ~= node.digest then
  return report('Conflict', about)
end
if record and records.is_busy_for(record, node.uid, now) then
  records.wait(node.record, node.uid)
  return report('Busy', about)
end
if record then
  records.leave(node.record, node.uid)
end
if record and record.status == 'SUCCESS' then
  local foreign = record.owner_node ~= node.uid and node.own_key ~= '1'
  if foreign and not recovers and node.duplicate ~= 'Replay' then
    return report('Duplicate', about)
  end
  about.outcome = record.outcome
  return report('Replayed', about)
end
local open_effect = record and record.status ~= 'FAILED'
if open_effect and not recovers and (node.side == 'Once' or record.side == 'Once') then
  records.reserve(node.record, record, node.uid, now)
  return report('Recover', about)
end

local rate = num(node.rate)
local period = rate > 0 and math.floor(1000000 / rate) + 1 or 0 -- a little over 1/rate: never rate + 1 in one second
if period > 0 and not recovers then
  local free_at = num(redis.call('GET', key('rate', node.tool)))
  if free_at > now_us then
    return {'WaitRate', int(math.ceil((free_at - now_us) / 1000))}
  end
end
local limits = slots.of(node, node.attempt)
local full = not recovers and slots.full(limits, node, node.attempt, now, true)
if full then
  return report('HandedBack', {reason = 'NoSlot ' .. full})
end

-- Granted: nothing above has taken anything.
if period > 0 and not recovers then
  redis.call('SET', key('rate', node.tool), int(now_us + period), 'PX', int(math.ceil(period / 1000) + 1000))
end
slots.take(limits, node, node.attempt, now, true)
local remaining = num(node.timeout)
if not recovers then
  remaining = math.min(remaining, num(node.run_deadline) - now)
end
local lease = now + conf.leaseMs
if recovers then
  local gone = record and workers.is_gone(record.exec_pool, record.exec_worker, record.exec_incarnation)
  local own_evidence = node.evidence_attempt == node.attempt and node.evidence
  write_hash(KEYS[1], node, {found = cjson.encode({
    record = record and cjson.encode(records.view(node.record, record, false)) or '',
    gone = gone and '1' or '0',
    evidence = record and record.evidence or own_evidence or '',
  })})
end
write_hash(KEYS[1], node, {state = 'claimed', token = arg.token, worker = arg.worker, incarnation = arg.incarnation,
  deadline = int(now + remaining)})
nodes.extend_claim(node, now)

local changes = {
  token = arg.token, lease = int(lease), last = int(now), inbox = '0',
  owner = node.owner, owner_run = node.run, owner_node = node.uid, attempt = node.attempt,
}
local forgotten = {'reserved_for', 'reserved_until', 'answered'}
if not recovers or not record then
  changes.status = 'PROCESSING'
  changes.digest = node.digest
  changes.side = node.side
  changes.scope = node.scope
  changes.window = node.window
end
if not recovers then
  changes.exec_token = arg.token
  changes.exec_pool = node.pool
  changes.exec_worker = arg.worker
  changes.exec_incarnation = arg.incarnation
end
if not recovers or not record then -- an expired one may still stand there
  for _, field in ipairs({'outcome', 'expires', 'evidence'}) do
    forgotten[#forgotten + 1] = field
  end
end
changes.first = record and record.first or int(now)
records.change(node.record, record or {}, changes, forgotten)
redis.call('PERSIST', key('record', node.record))

redis.pcall('XCLAIM', arg.stream, WORKERS_GROUP, CLAIMED_CONSUMER, '0', arg.entry, 'JUSTID')
reports.audit(node, 'Claimed', now, {'worker', arg.worker, 'kind', node.kind})
reports.send(node, 'Claimed', now, {worker = arg.worker, deadlineMs = int(remaining)})
return granted()
