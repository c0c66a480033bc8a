-- Count the live holders of a limit.
--
-- KEYS[1] slots (sorted set)
-- arg: none
-- Returns the count.
-- Cost: O(log holders)
return redis.call('ZCOUNT', KEYS[1], '(' .. int(clock.now_ms()), '+inf')
