-- Reports to the scheduler and the audit trail.
local reports = {}

local quote = cjson.encode -- of a string: escapes it

-- The text of a report. `more` may hold worker, holder, reason (strings), recordVersion, deadlineMs (digits) and outcome
-- (JSON text, taken over as it is).
local function compose(node, kind, now, more)
  local parts = {
    '"contractVersion":' .. int(conf.contractVersion),
    '"kind":' .. quote(kind),
    '"namespace":' .. quote(conf.namespace),
    '"runUid":' .. quote(node.run or ''),
    '"nodeUid":' .. quote(node.uid),
    '"attempt":' .. (node.attempt or '0'),
    '"seq":' .. (node.seq or '0'),
    '"epoch":' .. (node.epoch or '0'),
    '"recovering":' .. ((node.kind == 'Recover') and 'true' or 'false'),
    '"atMs":' .. int(now),
  }
  for _, name in ipairs({'worker', 'holder', 'reason'}) do
    if more[name] and more[name] ~= '' then
      parts[#parts + 1] = '"' .. name .. '":' .. quote(more[name])
    end
  end
  for _, name in ipairs({'recordVersion', 'deadlineMs', 'outcome'}) do
    if more[name] and more[name] ~= '' then
      parts[#parts + 1] = '"' .. name .. '":' .. more[name]
    end
  end
  return '{' .. table.concat(parts, ',') .. '}'
end

-- Append a report about the node's current order and remember it as its last.
function reports.send(node, kind, now, more)
  local text = compose(node, kind, now, more or {})
  redis.call('XADD', key('reports'), '*', 'report', text)
  if kind ~= 'RecordFreed' then -- that one is about the waiter's wait, not about its order
    write_hash(key('node', node.uid), node, {report = text})
  end
end

-- Append a report about an earlier order of the node, an execution: its last report stays what it is.
function reports.send_late(node, kind, attempt, seq, now, more)
  local about = {run = node.run, uid = node.uid, attempt = attempt, seq = seq, epoch = node.epoch}
  redis.call('XADD', key('reports'), '*', 'report', compose(about, kind, now, more))
end

-- Append one event to the run's audit trail; `what` is a flat list of fields and values.
function reports.audit(node, event, now, what)
  redis.call('XADD', key('audit', node.run or ''), 'MAXLEN', '~', int(conf.auditLength), '*',
    'event', event, 'atMs', int(now), 'node', node.uid, 'path', node.path or '', 'tool', node.tool or '',
    'attempt', node.attempt or '0', 'seq', node.seq or '0', 'request', node.request or '', unpack(what or {}))
end
