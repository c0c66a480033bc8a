-- Decide claims lost.
local fencing = {}

-- Take the claim (or the unclaimed order) away from whoever has it. Its later commits are evidence only.
-- `ends` true: nobody will recover it (the run has ended), so an open effect becomes UNKNOWN at once.
function fencing.fence(node, now, ends)
  local record = records.read(node.record, now)
  local mine = record and ((record.token or '') ~= '' and record.token == node.token
    or record.owner_node == node.uid and (record.token or '') == '' and record.status == 'PROCESSING'
    or record.reserved_for == node.uid)
  local claimed = node.state == 'claimed'
  if claimed and node.kind ~= 'Recover' then
    money.settle(node, node.attempt, nil, true)
  else
    money.give_back(node)
  end
  nodes.drop_entry(node.stream, node.entry)
  nodes.drop_claim(node)
  if ends then
    slots.free(node, node.attempt, false)
  end
  local changes = {state = 'fenced'}
  if claimed and node.kind ~= 'Recover' then
    changes['fenced:' .. node.seq] = node.token
  end
  write_hash(key('node', node.uid), node, changes)
  reports.audit(node, 'Fenced', now, {'worker', node.worker or '', 'kind', node.kind or ''})
  if not mine then
    return
  end
  local open_effect = node.side == 'Once'
  if not open_effect then
    if claimed or record.status == 'PROCESSING' then
      records.settle(node.record, record, 'FAILED', nil, node.uid, now)
    end
  elseif node.kind == 'Recover' or ends then
    if record.status == 'PROCESSING' or record.status == 'UNKNOWN' then
      records.settle(node.record, record, 'UNKNOWN', record.outcome, node.uid, now)
    else -- EXECUTED stays known as executed
      records.change(node.record, record, {token = '', lease = '0'})
      records.reserve(node.record, record, node.uid, now)
    end
  elseif claimed then
    records.change(node.record, record, {token = '', lease = '0', last = int(now)})
    records.reserve(node.record, record, node.uid, now)
  end
  if ends then
    fencing.let_go(node, record, now)
  end
end

-- Take back what a lost attempt was estimated to cost, in favour of what its worker said late, and report that.
-- `outcome` may be nil: nothing was begun.
function fencing.correct_cost(node, attempt, seq, usage, outcome, now)
  if money.settle(node, attempt, usage, false, true) then
    reports.send_late(node, 'CostKnown', attempt, seq, now, {outcome = outcome})
  end
end

-- The record's owner will do nothing more about it: the next in line may.
function fencing.let_go(node, record, now)
  if record.inbox == '1' then
    return
  end
  if record.reserved_for == node.uid then
    forget(key('record', node.record), record, 'reserved_for', 'reserved_until')
  end
  if record.status == 'UNKNOWN' or record.status == 'EXECUTED' then
    records.tell(node.record, record, now, true)
  end
end

-- Report claims that have not been heard of for a lease, each once, at most `limit`; sweep those of ended runs.
-- Returns how many were looked at.
function fencing.report_lost(now, limit)
  local silent = redis.call('ZRANGEBYSCORE', key('claims'), '-inf', int(now), 'LIMIT', 0, limit)
  if #silent == 0 or clock.up_ms() < conf.leaseMs then
    return 0
  end
  for _, uid in ipairs(silent) do
    redis.call('ZREM', key('claims'), uid)
    local node = nodes.read(uid)
    if node.state == 'claimed' and node.lost ~= '1' then
      local state = redis.call('HGET', key('run', node.run), 'state')
      if not state or state == 'finished' then
        fencing.fence(node, now, true)
      else
        write_hash(key('node', uid), node, {lost = '1'})
        reports.send(node, 'Lost', now, {worker = node.worker})
      end
    end
  end
  return #silent
end
