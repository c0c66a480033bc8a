# Runs one call of a tool of type container, inside of the tool's own container. Carried out by the busybox that stands
# beside it, for the image may hold no shell: busybox sh container_helper.sh BUSYBOX CALL ANSWER COMMAND [ARGUMENT...]
#
# CALL (read only here) is written by the companion, which holds the order; ANSWER by this script and by the tool:
#   ANSWER/started          the image, its mounts and the command are there; no order is taken before
#   CALL/alive              a number that rises while the companion lives
#   CALL/go                 whole seconds that the call may take; params.json, request-id and key stand beside it then
#   ANSWER/output.json      the tool's result
#   ANSWER/alive            a number that rises while this script lives
#   CALL/stop               the tool is to end: SIGTERM, and SIGKILL some seconds later
#   ANSWER/ended            what the tool ended with; "none" when it was not begun
#   CALL/end                the companion has ended, and nothing is left to do
# Files that say something appear whole: they are renamed into their places.
set -u
busybox=$1 call=$2 answer=$3
shift 3
umask 022
silence=15 # seconds without a sign of the companion after which the claim may become another's
last_words=5

say() { # FILE TEXT
  echo "$2" >"$answer/.$1" && "$busybox" mv "$answer/.$1" "$answer/$1"
}

read_number() { # FILE: sets number, which stays as it was where there is none
  read -r number <"$1" 2>/dev/null || :
}

# Whether the companion is silent, on this script's own clock. Keeps heard, heard_at.
heard=
heard_at=
now() { read -r now _ </proc/uptime && now=${now%.*}; }
is_silent() {
  number=$heard
  [ -r "$call/alive" ] && read_number "$call/alive"
  now
  if [ "$number" != "$heard" ] || [ -z "$heard_at" ]; then
    heard=$number heard_at=$now
  fi
  [ $((now - heard_at)) -ge $silence ]
}

# A container that is told to end goes on: its companion decides, and a tool under way comes to its end.
trap : TERM INT

# By its path from here on: this shell would take a program of its own for one that is called like it.
find_program() {
  case $1 in
  */*) found=$1 ;;
  *)
    found=
    old_ifs=$IFS IFS=:
    for folder in ${PATH:-/usr/local/bin:/usr/bin:/bin}; do
      if [ -z "$found" ] && [ -x "$folder/$1" ] && [ ! -d "$folder/$1" ]; then
        found=$folder/$1
      fi
    done
    IFS=$old_ifs
    ;;
  esac
  [ -n "$found" ] && [ -x "$found" ] && [ ! -d "$found" ]
}

if ! find_program "$1"; then
  said="command $1: no such program in the image"
  echo "$said" >&2
  [ ! -w /dev/termination-log ] || echo "$said" >/dev/termination-log
  say unusable "$said"
  exit 127
fi
shift
set -- "$found" "$@"
say started yes

until [ -e "$call/go" ]; do
  if [ -e "$call/end" ] || is_silent; then
    exit 0
  fi
  "$busybox" sleep 0.1
done
read -r seconds <"$call/go"
read -r AGENTRUN_REQUEST_ID <"$call/request-id"
read -r AGENTRUN_IDEMPOTENCY_KEY <"$call/key"
AGENTRUN_PARAMS=$call/params.json AGENTRUN_OUTPUT=$answer/output.json
export AGENTRUN_REQUEST_ID AGENTRUN_IDEMPOTENCY_KEY AGENTRUN_PARAMS AGENTRUN_OUTPUT
if [ -e "$call/stop" ] || [ -e "$call/end" ] || is_silent; then
  say ended none
  exit 0
fi

now
until=$((now + seconds))
# A session of its own: whatever it starts ends with it.
"$busybox" setsid "$@" &
child=$!

watch() {
  beat=0 since=
  while [ -e "/proc/$child" ]; do
    beat=$((beat + 1))
    say alive $beat
    if [ -z "$since" ]; then
      if [ -e "$call/stop" ] || [ -e "$call/end" ] || is_silent || [ "$now" -ge "$until" ]; then
        now
        since=$now
        kill -TERM "-$child" 2>/dev/null
      fi
    else
      now
      [ $((now - since)) -lt $last_words ] || kill -KILL "-$child" 2>/dev/null
    fi
    "$busybox" sleep 0.2
  done
}
watch &
watcher=$!
while :; do
  wait "$child"
  code=$?
  # Told to end itself, it waits on.
  [ -e "/proc/$child" ] || break
done
kill -KILL "-$child" 2>/dev/null
kill "$watcher" 2>/dev/null
say ended $code
exit $code
