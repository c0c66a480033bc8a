-- Sweep a batch of a closed run's nodes: unclaimed orders go, dead claims are fenced (Once: UNKNOWN, others FAILED),
-- reservations end, records of scope Run get an end, waiters are told, and its own nodes wait in no line any more. Live
-- claims are left to their commits.
--
-- KEYS[1] runnodes (set)
-- Derived: the nodes, their records, waiters, slots, streams.
-- arg: cursor (of SSCAN, first 0), batch, keep (ms)
-- Returns {next cursor, '0' when done; claims that still live}. Safe to repeat.
-- Cost: O(batch x waiters)
local now = clock.now_ms()
local keep = math.max(tonumber(arg.keep), 1)
local living = 0
local page = redis.call('SSCAN', KEYS[1], arg.cursor, 'COUNT', arg.batch)
for _, uid in ipairs(page[2]) do
  local node = nodes.read(uid)
  if node.seq then
    if node.state == 'queued' then
      nodes.close_unclaimed(node, 'closed', false)
    elseif node.state == 'claimed' and not lease_lives(node.lease, now) then
      fencing.fence(node, now, true)
    elseif node.state == 'claimed' then
      living = living + 1
    end
    if node.record and node.state ~= 'claimed' then
      records.leave(node.record, uid)
    end
    local record = node.record and records.read(node.record, now)
    if record and record.owner_node == uid and node.state ~= 'claimed' then
      if record.status == 'PROCESSING' and (record.token or '') == '' then
        records.settle(node.record, record, record.side == 'Once' and 'UNKNOWN' or 'FAILED', nil, uid, now)
      end
      if record.status == 'UNKNOWN' or record.status == 'EXECUTED' then
        fencing.let_go(node, record, now)
      end
      if record.scope == 'Run' and (record.status == 'SUCCESS' or record.status == 'FAILED') and not record.expires then
        records.expire_later(node.record, record, now, keep)
      end
    end
  end
  redis.call('PEXPIRE', key('node', uid), int(math.max(keep, conf.minKeepMs)))
end
return {page[1], living}
