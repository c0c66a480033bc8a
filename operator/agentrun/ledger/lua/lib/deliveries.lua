-- Entries of order streams, between XADD and claim.
local deliveries = {}

-- Read an entry's fields. Returns node uid, seq, order JSON; nil when the entry is no order.
function deliveries.parse(fields)
  if type(fields) ~= 'table' then
    return nil
  end
  local found = {}
  for i = 1, #fields, 2 do
    found[fields[i]] = fields[i + 1]
  end
  if found.node and found.seq and found.order then
    return found.node, found.seq, found.order
  end
  return nil
end

-- Whether the entry's order still stands unclaimed. What does not is put away: claimed ones out of reach of reclaim,
-- everything else (stale, broken) for good.
function deliveries.stands(stream, entry, fields)
  local uid, seq = deliveries.parse(fields)
  if uid then
    local state = redis.call('HMGET', key('node', uid), 'seq', 'state', 'entry')
    if state[1] == seq and state[3] == entry then
      if state[2] == 'queued' then
        return true
      end
      if state[2] == 'claimed' then
        redis.pcall('XCLAIM', stream, WORKERS_GROUP, CLAIMED_CONSUMER, '0', entry, 'JUSTID')
        return false
      end
    end
  end
  nodes.drop_entry(stream, entry)
  return false
end

function deliveries.body(stream, entry)
  local found = redis.call('XRANGE', stream, entry, entry)
  return found[1] and found[1][2]
end

-- Streams of a pool by priority; inside a priority they take turns.
function deliveries.streams(queues, turn)
  local names = redis.call('SMEMBERS', queues)
  table.sort(names)
  local ordered = {}
  for _, priority in ipairs({'P0', 'P1', 'P2', 'P3'}) do
    local same = {}
    for _, name in ipairs(names) do
      if string.sub(name, -2) == priority then
        same[#same + 1] = name
      end
    end
    for i = 1, #same do
      ordered[#ordered + 1] = same[(i + turn) % #same + 1]
    end
  end
  return ordered
end

-- Run a command on a stream's group; when server and group have lost each other the group is made again from the
-- stream's start: what had been done already is recognised by its node.
function deliveries.with_group(stream, ...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then
    if not string.find(reply.err, 'NOGROUP', 1, true) and not string.find(reply.err, 'no such key', 1, true) then
      error(reply.err)
    end
    redis.call('XGROUP', 'CREATE', stream, WORKERS_GROUP, '0', 'MKSTREAM')
    reply = redis.call(...)
  end
  return reply
end
