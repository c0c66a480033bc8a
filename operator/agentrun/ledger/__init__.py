"""The ledger on Redis or Valkey: one Lua file per atomic operation, and its Python caller."""
