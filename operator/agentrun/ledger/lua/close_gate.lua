-- Close the gate, as a rebuild begins; a ledger without a generation gets one.
--
-- KEYS[1] meta (hash)
-- arg: generation (a fresh id), formatVersion
-- Returns 1.
-- Cost: O(1)
redis.call('HSET', KEYS[1], 'open', '0')
redis.call('HSETNX', KEYS[1], 'generation', arg.generation)
redis.call('HSETNX', KEYS[1], 'epoch', '0')
redis.call('HSETNX', KEYS[1], 'formatVersion', arg.formatVersion)
return 1
