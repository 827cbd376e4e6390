# test: locks of version 3 by NLM exclude a version 4.1 client's, waiters are called, and locks are reclaimed after the server was killed
# versions: 3
# backends: local
# limit: 300
mount_locking /run/nlm
VERSION=4.1 mount_other
three=/run/nlm/${D##*/} four=/run/other/${D##*/}
: >"$D/file"

# Neither client gets what the other has.
exec 5<>"$three/file"
flock -n 5
refused '' flock -n "$four/file" true
refused '' flock -n "$three/file" true
same busy "$(echo 'lock write 0 10' | "$PROBE" hold "$four/file")" 'bytes that version 3 has locked'
exec 5>&-
flock -n "$four/file" true
exec 6<>"$four/file"
flock -n 6
refused '' flock -n "$three/file" true
same busy "$(echo 'lock read 5 10' | "$PROBE" hold "$three/file")" 'bytes that version 4.1 has locked'

# A program of version 3 waits for version 4.1. The server calls its client, which would ask again after 30 s only. A waiter must
# not inherit the descriptor of the lock that it waits for.
flock "$three/file" sh -c "cut -d ' ' -f 1 /proc/uptime >'$L/granted'; sleep 1" 6>&- & waiter=$!
sleep 2
[ ! -e "$L/granted" ] || fail 'a lock was given twice'
exec 6>&-
wait "$waiter"
# And the other way round.
exec 5<>"$three/file"
flock 5
flock "$four/file" touch "$L/other" 5>&- & waiter=$!
sleep 2
[ ! -e "$L/other" ] || fail 'a lock was given twice'
exec 5>&-
wait "$waiter"

# The server is killed while both clients hold locks. They reclaim them, and nobody else gets them meanwhile.
: >"$D/three"; : >"$D/four"
exec 5<>"$three/three" 6<>"$four/four"
flock -n 5; flock -n 6
server kill; server start
refused '' flock -n "$four/three" true
refused '' flock -n "$three/four" true
refused '' flock -n "$four/three" true
exec 5>&- 6>&-
flock "$four/three" true
flock "$three/four" true
umount /run/nlm /run/other
