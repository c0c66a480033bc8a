-- Change a run's limits.
--
-- KEYS[1] run (hash)
-- arg: micros, tokens, calls (-1 unlimited)
-- Returns 1, or 0 when the run is unknown.
-- Cost: O(1)
if redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
redis.call('HSET', KEYS[1], 'limit_micros', arg.micros, 'limit_tokens', arg.tokens, 'limit_calls', arg.calls)
return 1
