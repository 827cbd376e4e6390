# test: a disconnected client keeps its state until its lease is over and another client needs it; afterwards it learns of that loss (EIO) only
# versions: 4.0 4.1 4.2
# exports: sync async
# backends: local
# takes: 45
[ -n "$ENFYS" ] || return 0
# The test's own server, with a short lease.
K=${HOST_EXPORT%/*}/gone
SERVER=10.99.0.6
device='$(ip -o -4 addr show to 10.99.0.1 | awk "{ print \$2; exit }")'
host "rm -rf '$K'; mkdir -p '$K/export'; ip addr add $SERVER/24 dev $device
    cat >'$K/enfys.toml' <<END
listen = [\"$SERVER:$PORT\"]
state-dir = \"$K/state\"
limits = { lease-seconds = 5 }
[[export]]
path = \"$K/export\"
pseudo = \"/export\"
squash = \"none\"
END
    setsid '$ENFYS' serve --config '$K/enfys.toml' >'$K/log' 2>&1 </dev/null & echo \$! >'$K/pid'
    for attempt in \$(seq 600); do ss -Hltn 'src $SERVER:$PORT' | grep -q . && exit; sleep 0.1; done; cat '$K/log' >&2; exit 1"
mount_export /run/gone
mount_other
there=/run/other here=/run/gone
of_other() { of_client 10.99.1.2 "$1" "$2" "$K/state"; }
until_other() { # WANTED FUNCTION NAME: until the server says so of the other client
    for _ in $(seq 300); do [ "$(of_other "$2" "$3")" != "$1" ] || return 0; sleep 0.2; done
    same "$1" "$(of_other "$2" "$3")" "$3 of the other client"
}

# Both have the file open, so it is not delegated: the server knows the lock.
echo before >"$here/locked"
exec 5<>"$here/locked"
exec 6<>"$there/locked"
flock -n 6
echo quiet >"$there/quiet"
exec 7<>"$there/quiet"
reachable 10.99.1.2 "$K/state"
echo delegated >"$there/delegated"
sync -f "$there/delegated"
same 1 "$(of_other sum locks)" 'locks'
[ "$VERSION" = 4.0 ] || [ "$(of_other sum delegations)" -ge 1 ] || fail 'nothing is delegated'
refused '' flock -n "$here/locked" true

ip -n other link set vec1 down
until_other courteous group_concat state
same '1 0' "$(of_other sum locks) $(of_other sum lost)" 'what nobody wants is kept'
# Nobody waits for the disconnected client: another client gets the lock and the file.
flock -n 5 || fail 'the lock is kept for a client that is gone'
same delegated "$(cat "$here/delegated")"
echo changed >"$here/delegated"
same 0 "$(of_other sum locks)" 'locks that another has now'
[ "$(of_other sum lost)" -ge 1 ] || fail 'nothing was lost'

# It returns. Linux's client looks for lost state with its next request. A WRITE that is in progress just then may be sent once more with
# the open's stateid, so nobody writes before the client has noticed.
ip -n other link set vec1 up
ip -n other route add default via 10.99.1.1
has_heard() { dmesg | grep -q 'lost [0-9]* locks'; }
until_true has_heard
dropped() { echo dropped | dd conv=notrunc,fsync status=none >&6; }
refused 'Input/output error' dropped
same before "$(cat "$here/locked")" 'what was written under a lost lock'
# Its other files are unaffected.
echo more >&7
same more "$(cat "$there/quiet")"
same more "$(cat "$here/quiet")"
same changed "$(cat "$there/delegated")"
refused '' flock -n "$there/locked" true
# It never frees the stateid of the lock; with the file's CLOSE it has acknowledged the loss.
exec 6<&-
until_other 0 sum lost
until_other active group_concat state
flock -u 5
exec 6<>"$there/locked"
flock -n 6 || fail 'no new lock'
# It stays registered over a lease renewal, and no further loss is reported.
sleep 4
echo behind >&6
exec 6<&- 5<&-
same behind "$(head -1 "$here/locked")"
same '0 0' "$(of_other sum locks) $(of_other sum lost)" 'what is left of locks'
exec 7<&-
umount /run/other /run/gone
host "kill \$(cat '$K/pid'); ip addr del $SERVER/24 dev $device"
# The kernel logs the lost lock.
dmesg --clear
