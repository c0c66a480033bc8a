-- Put back what the resources prove about a node, where nothing is known: its seq, its cost, its record.
--
-- KEYS[1] node (hash)   KEYS[2] run (hash)   KEYS[3] runnodes (set)   KEYS[4] record (hash; absent without one)
-- arg: node, run, path, owner, seq, attempt, tool, state ('lost' when its order was out, else 'ended'),
--      settled {micros, tokens, calls}, estimates (micros by attempt), stake (micros of the call
--      under way), record, status, digest, side, scope, window (ms), version, inbox (1 or 0)
-- ARGV[3] the record's outcome, JSON, or ''
-- Returns 1. Node and record are set only if absent, so that a rebuild may be interrupted and repeated, and may run
-- over a ledger that has lost nothing.
-- Cost: O(1)
local now = clock.now_ms()
local node = nodes.read(arg.node)
if not node.seq then
  write_hash(KEYS[1], node, {run = arg.run, path = arg.path, owner = arg.owner, seq = arg.seq, attempt = arg.attempt,
    tool = arg.tool, state = arg.state, at_stake = arg.stake})
  redis.call('SADD', KEYS[3], arg.node)
  money.restore(node, arg.settled, arg.state == 'ended', arg.estimates)
end
if KEYS[4] and not read_hash(KEYS[4]) then
  local record = {}
  local changes = {status = arg.status, digest = arg.digest, side = arg.side, scope = arg.scope, window = arg.window,
    token = '', lease = '0', first = int(now), last = int(now), inbox = arg.inbox, owner = arg.owner,
    owner_run = arg.run, owner_node = arg.node, attempt = arg.attempt}
  if ARGV[3] ~= '' then
    changes.outcome = ARGV[3]
  end
  write_hash(KEYS[4], record, {version = int(tonumber(arg.version) - 1)})
  records.change(arg.record, record, changes)
  if arg.status == 'SUCCESS' and arg.scope ~= 'Run' then
    records.expire_later(arg.record, record, now, num(arg.window))
  elseif arg.status ~= 'SUCCESS' and arg.inbox == '0' then
    records.reserve(arg.record, record, arg.node, now)
  end
end
return 1
