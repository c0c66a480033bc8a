-- Take a node out of a record's line.
--
-- KEYS[1] waiters (list)
-- arg: node
-- Returns how many times it stood there.
-- Cost: O(waiters)
return redis.call('LREM', KEYS[1], 0, arg.node)
