-- Close the run: record its outcome in the tombstone, refuse everything further, release its session.
--
-- KEYS[1] run (hash)   KEYS[2] tombstone (hash)   KEYS[3] runnodes (set)   KEYS[4] audit (stream)
-- KEYS[5] session (hash; absent without one)
-- arg: uid, keep (ms that tombstone and run are kept)
-- ARGV[3] outcome JSON; '' when the run was deleted before its end: one of the same content goes on with it then
-- Returns 1. Repeating it changes nothing but the end of the keeping. Its nodes are swept by sweep_run.lua afterwards.
-- A session with a live claim stays busy: the claims' fields stay when the holder goes.
-- Cost: O(1)
local now = clock.now_ms()
local keep = math.max(tonumber(arg.keep), 1)
local stone = read_hash(KEYS[2])
if not stone or stone.uid == arg.uid then
  redis.call('HSET', KEYS[2], 'uid', arg.uid, 'expires', int(now + keep))
  if ARGV[3] ~= '' then
    redis.call('HSET', KEYS[2], 'outcome', ARGV[3])
  end
  redis.call('PEXPIRE', KEYS[2], int(keep))
end
if redis.call('EXISTS', KEYS[1]) == 1 then
  redis.call('HSET', KEYS[1], 'state', 'finished')
  redis.call('PEXPIRE', KEYS[1], int(math.max(keep, conf.minKeepMs)))
  redis.call('PEXPIRE', KEYS[3], int(math.max(keep, conf.minKeepMs)))
  redis.call('PEXPIRE', KEYS[4], int(conf.auditKeepMs))
end
if KEYS[5] and redis.call('HGET', KEYS[5], 'run') == arg.uid then
  redis.call('HDEL', KEYS[5], 'run', 'holder') -- the name stays, to be shown while a claim lives
  if redis.call('HLEN', KEYS[5]) <= 1 then
    redis.call('DEL', KEYS[5])
  end
end
return 1
