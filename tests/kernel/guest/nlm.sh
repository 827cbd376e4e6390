# test: locks of versions 2 and 3 by NLM exclude a version 4.1 client's, waiters are called, and locks are reclaimed after the server was killed
# versions: 2 3
# backends: local
# limit: 600
if grep -q ' /run/nfs nfs .*nolock' /proc/mounts; then fail 'the locks of this mount are local'; fi
VERSION=4.1 mount_other
three=$D four=/run/other/${D##*/}
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

# Two programs increment a number under a lock, in both versions, and in version 3 and beside the server (with fcntl locks; the file is
# not delegated then). No increment is lost, and no two hold the lock: each makes a directory while it has it.
holder=${HOST_EXPORT%/*}/holder
increment() {
    for _ in $(seq 20); do
        flock 9
        mkdir "$holder"
        echo $(($(cat "$1") + 1)) >"$1"
        rmdir "$holder"
        flock -u 9
    done
}
echo 0 >"$D/number"
(set -e; increment "$three/number") 9<>"$three/number" & other=$!
(set -e; increment "$four/number") 9<>"$four/number"
wait "$other"
same 40 "$(cat "$D/number")" 'increments of versions 3 and 4.1'
echo 0 >"$D/local"
host "python3 - \"\$H/local\" '$holder' <<'END'
import fcntl, os, sys
path, holder = sys.argv[1:]
file = os.open(path, os.O_RDWR)
for _ in range(20):
    fcntl.lockf(file, fcntl.LOCK_EX)
    os.mkdir(holder)
    number = int(os.pread(file, 32, 0))
    os.pwrite(file, b'%d\n' % (number + 1), 0)
    os.rmdir(holder)
    fcntl.lockf(file, fcntl.LOCK_UN)
END" & other=$!
(set -e; increment "$three/local") 9<>"$three/local"
wait "$other"
same 40 "$(cat "$D/local")" 'increments of version 3 and of a local process'

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
umount /run/other
