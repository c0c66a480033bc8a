-- Take a run that is wound up out of the list of those that are not.
--
-- KEYS[1] runs (set)
-- arg: uid
-- Returns 1, or 0 when it was not there.
-- Cost: O(1)
return redis.call('SREM', KEYS[1], arg.uid)
