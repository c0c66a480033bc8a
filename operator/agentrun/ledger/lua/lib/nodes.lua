-- A node's order: where it stands, and how it ends without an outcome.
--
-- `state` of the current seq: queued, claimed, ended (reported on), withdrawn, fenced, closed (its run had ended).
local nodes = {}

function nodes.read(uid)
  local node = read_hash(key('node', uid)) or {}
  node.uid = uid
  return node
end

-- Acknowledge and remove an entry. Safe to repeat, and for entries and groups that are gone.
function nodes.drop_entry(stream, entry)
  if (stream or '') == '' or (entry or '') == '' then
    return
  end
  redis.pcall('XACK', stream, WORKERS_GROUP, entry)
  redis.call('XDEL', stream, entry)
end

-- Take an unclaimed order out of circulation: its entry goes, its hold and its slots come back.
function nodes.close_unclaimed(node, state, skip_global)
  nodes.drop_entry(node.stream, node.entry)
  money.give_back(node)
  slots.free(node, node.attempt, skip_global)
  write_hash(key('node', node.uid), node, {state = state})
end

-- End an unclaimed order with a report. `gate_token` lets a repeated claim get the same answer.
function nodes.end_unclaimed(node, kind, now, more, gate_token)
  nodes.close_unclaimed(node, 'ended', true)
  if gate_token then
    write_hash(key('node', node.uid), node, {gate_token = gate_token, gate_kind = kind})
  end
  reports.send(node, kind, now, more)
end

-- The claim is over: nobody is waited for any more, and the session does not count it.
function nodes.drop_claim(node)
  redis.call('ZREM', key('claims'), node.uid)
  if (node.session or '') ~= '' then
    redis.call('HDEL', node.session, 'claim:' .. node.uid)
  end
end

-- Extend the claim's lease wherever it stands.
function nodes.extend_claim(node, now)
  local lease = int(now + conf.leaseMs)
  write_hash(key('node', node.uid), node, {heard = int(now), lease = lease, lost = '0'})
  redis.call('ZADD', key('claims'), lease, node.uid)
  if (node.session or '') ~= '' then
    redis.call('HSET', node.session, 'claim:' .. node.uid, lease)
  end
end

-- Whether the token is the current claim's: the node's own, and not overtaken on the record.
function nodes.holds_claim(node, seq, token, record)
  if node.seq ~= seq or node.state ~= 'claimed' or node.token ~= token then
    return false
  end
  return record == nil or record.token == token
end
