#!/usr/bin/env bash
# Runs the stock transfer on this machine: a real shop on a free loopback port, a real ledger, the real worker; then
# shows what the shop's database holds. Needs `agentrun` on PATH; nothing is left behind.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
work="$(mktemp -d)"
shop=""
# Ends the shop, by its id, and removes the folder.
finish() {
  if [ -n "$shop" ]; then
    kill "$shop" 2>/dev/null || true
    wait "$shop" 2>/dev/null || true
  fi
  rm -rf "$work"
}
trap finish EXIT

python3 "$here/shop.py" --database "$work/shop.db" --port-file "$work/port" &
shop=$!
for _ in $(seq 200); do
  [ -s "$work/port" ] && break
  sleep 0.05
done
port="$(cat "$work/port")"

# A tool's host is the platform team's word, so it is no parameter: the real port goes into a copy of the manifest.
sed "s/127\.0\.0\.1:8480/127.0.0.1:$port/" "$here/tools.yaml" > "$work/tools.yaml"
cp "$here/stock_tools.py" "$work/"
echo "The shop listens on port $port; its database is $work/shop.db."
status=0
agentrun local run "$work/tools.yaml" "$here/run.yaml" "$@" || status=$?

echo
python3 - "$work/shop.db" <<'PYTHON' || status=1
import sqlite3
import sys

database = sqlite3.connect(sys.argv[1])
transfers = database.execute("SELECT id, source, target, items FROM transfers").fetchall()
print(f"The shop's database holds {len(transfers)} transfer{'' if len(transfers) == 1 else 's'}:")
for row in transfers:
    print("  #{} from {} to {}: {}".format(*row))
sys.exit(0 if len(transfers) == 1 else 1)
PYTHON
exit "$status"
