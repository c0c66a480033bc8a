-- Check tombstone and session, and register the run.
--
-- KEYS[1] run (hash)   KEYS[2] tombstone of the run's name (hash)   KEYS[3] namespaces (set)
-- KEYS[4] runs (set)   KEYS[5] session (hash; absent without a session)
-- Derived: the run that holds the session.
-- arg: uid, name, digest, holder, micros, tokens, calls (limits, -1 unlimited)
-- Returns {verdict, other uid, other name, outcome JSON of the finished run}.
-- The same uid gets the same answer again, and once it is finished its own outcome. A session is free when its holder run is finished or unknown and none of
-- its claims lives.
-- Cost: O(claims of the session)
local now = clock.now_ms()
local known = read_hash(KEYS[1])

local stone = read_hash(KEYS[2])
if stone and stone.expires and num(stone.expires) <= now then
  stone = nil
end
local adopts = ''
if known and known.state == 'finished' and stone and stone.uid == arg.uid and stone.outcome then
  return {'AlreadyFinished', arg.uid, arg.name, stone.outcome}
elseif known then
  adopts = known.adopts or ''
elseif stone and stone.digest == arg.digest and stone.uid ~= arg.uid then
  if stone.outcome then
    return {'AlreadyFinished', stone.uid, arg.name, stone.outcome}
  end
  -- Of several that were deleted one after the other, the first one's identity goes on.
  local before = redis.call('HGET', key('run', stone.uid), 'adopts')
  adopts = before and before ~= '' and before or stone.uid
end

local session = KEYS[5] and (read_hash(KEYS[5]) or {})
if session and not (known and known.state == 'finished') then
  local holder_uid = session.run or ''
  if holder_uid ~= arg.uid then
    local holder = holder_uid ~= '' and read_hash(key('run', holder_uid))
    if holder and holder.state ~= 'finished' then
      return {'SessionBusy', holder_uid, holder.name, ''}
    end
    for field, until_ms in pairs(session) do
      if string.sub(field, 1, 6) == 'claim:' then
        if lease_lives(until_ms, now) then
          return {'SessionBusy', holder_uid, holder and holder.name or session.name or '', ''}
        end
        redis.call('HDEL', KEYS[5], field)
      end
    end
  end
  redis.call('HSET', KEYS[5], 'run', arg.uid, 'holder', arg.holder, 'name', arg.name)
end

if not (known and known.state == 'finished') then
  redis.call('SADD', KEYS[4], arg.uid)
end
if not known then
  redis.call('HSET', KEYS[1], 'uid', arg.uid, 'name', arg.name, 'state', 'open', 'digest', arg.digest,
    'session', KEYS[5] or '', 'holder', arg.holder, 'adopts', adopts,
    'limit_micros', arg.micros, 'limit_tokens', arg.tokens, 'limit_calls', arg.calls)
  redis.call('DEL', KEYS[2])
  redis.call('HSET', KEYS[2], 'uid', arg.uid, 'name', arg.name, 'digest', arg.digest)
  redis.call('SADD', KEYS[3], conf.namespace)
end
if adopts ~= '' then
  return {'Adopt', adopts, arg.name, ''}
end
return {'Admitted', '', '', ''}
