-- Idempotency records: their reading, liveness, changes, and the line of nodes that wait for them.
local records = {}

-- The record as stored, or nil; one that has expired is nil too (its key dies by itself).
function records.read(record_key, now)
  local record = read_hash(key('record', record_key))
  if not record or (record.expires and num(record.expires) <= now) then
    return nil
  end
  return record
end

local function reserved_until(record)
  return num(record.reserved_until)
end

-- Whether a claim or recovery holds it, or it is reserved for one.
function records.is_live(record, now)
  if (record.token or '') ~= '' and lease_lives(record.lease, now) then
    return true
  end
  return (record.reserved_for or '') ~= '' and reserved_until(record) > now
end

-- Whether another than this node keeps it from being taken.
function records.is_busy_for(record, node_uid, now)
  if (record.token or '') ~= '' and lease_lives(record.lease, now) then
    return true
  end
  if (record.reserved_for or '') ~= '' and record.reserved_for ~= node_uid and reserved_until(record) > now then
    return true
  end
  return record.inbox == '1' and record.owner_node ~= node_uid
end

-- Change a record; its version grows by one. Fields listed in `gone` are removed.
function records.change(record_key, record, changes, gone)
  local name = key('record', record_key)
  changes.version = int(num(redis.call('HGET', name, 'version')) + 1)
  write_hash(name, record, changes)
  if gone and #gone > 0 then
    forget(name, record, unpack(gone))
  end
end

-- Reserve it for the node's own recovery, so that others are told it is busy. No change of version.
function records.reserve(record_key, record, node_uid, now)
  write_hash(key('record', record_key), record,
    {reserved_for = node_uid, reserved_until = int(now + conf.reserveMs)})
end

-- Let a settled record live for its window. Those of scope Run live until the run's end is swept.
function records.expire_later(record_key, record, now, keep_ms)
  local name = key('record', record_key)
  write_hash(name, record, {expires = int(now + keep_ms)})
  redis.call('PEXPIRE', name, int(math.max(keep_ms, 1)))
end

function records.wait(record_key, node_uid)
  local line = key('waiters', record_key)
  if not redis.call('LPOS', line, node_uid) then
    redis.call('RPUSH', line, node_uid)
  end
end

-- Take a node out of the record's line: it has had its turn, or wants none any more.
function records.leave(record_key, node_uid)
  redis.call('LREM', key('waiters', record_key), 0, node_uid)
end

-- Tell those who wait that they may try again: all of them, or the first whose run still goes on.
function records.tell(record_key, record, now, only_next)
  local line = key('waiters', record_key)
  while true do
    local uid = redis.call('LPOP', line)
    if not uid then
      return
    end
    local waiter = read_hash(key('node', uid))
    if waiter then
      waiter.uid = uid
    end
    if waiter and redis.call('HGET', key('run', waiter.run), 'state') == 'open' then
      reports.send(waiter, 'RecordFreed', now, {holder = record.owner, recordVersion = record.version})
      if only_next then
        return
      end
    end
  end
end

-- Give the record its status after an end, and tell or reserve as that status demands. `outcome` may be nil.
function records.settle(record_key, record, status, outcome, node_uid, now)
  local changes = {status = status, token = '', lease = '0', last = int(now), inbox = '0'}
  local gone = {'reserved_for', 'reserved_until', 'expires', 'answered'}
  if outcome then
    changes.outcome = outcome
  else
    gone[#gone + 1] = 'outcome'
  end
  records.change(record_key, record, changes, gone)
  local name = key('record', record_key)
  if status == 'SUCCESS' or status == 'FAILED' then
    if record.scope ~= 'Run' then
      records.expire_later(record_key, record, now, num(record.window))
    else
      redis.call('PERSIST', name)
    end
    records.tell(record_key, record, now, false)
  elseif record.side == 'Once' then
    redis.call('PERSIST', name)
    records.reserve(record_key, record, node_uid, now)
  else
    redis.call('PERSIST', name)
    records.tell(record_key, record, now, false)
  end
end

-- The record as a flat list for the caller: its fields, and whether it is live.
function records.view(record_key, record, live)
  local flat = {'key', record_key, 'live', live and '1' or '0'}
  for field, value in pairs(record) do
    flat[#flat + 1] = field
    flat[#flat + 1] = value
  end
  return flat
end
