# test: programs of two guests increment numbers in one file under flock, then under fcntl locks: none is lost, and no two hold the lock
# versions: 3 4.1
# backends: local
# limit: 120
# takes: 30
each=60
increment() { # flock|fcntl: as often as the other guest; a directory exists while a program has the lock
    python3 - "$D/$1" "$1" "$GUEST" "$each" "${HOST_EXPORT%/*}/holder-$1" <<'END'
import fcntl, os, sys, time
path, kind, guest, each, holder = sys.argv[1:]
own, each = int(guest) - 1, int(each)
change = fcntl.flock if kind == 'flock' else fcntl.lockf
file = os.open(path, os.O_RDWR)
done = 0
while done < each:
    change(file, fcntl.LOCK_EX)
    os.mkdir(holder)
    counts = [int(word) for word in os.pread(file, 64, 0).split()]
    # Neither does its second half before the other has begun.
    is_alone = done == each // 2 and counts[1 - own] == 0
    if not is_alone:
        counts[own] += 1
        done += 1
        os.pwrite(file, b'%d %d\n' % tuple(counts), 0)
    os.rmdir(holder)
    change(file, fcntl.LOCK_UN)
    if is_alone:
        time.sleep(0.1)
END
}
if grep -q ' /run/nfs nfs .*nolock' /proc/mounts; then fail 'the locks of this mount are local'; fi
if [ "$GUEST" = 1 ]; then
    echo 0 0 >"$D/flock"
    echo 0 0 >"$D/fcntl"
    guest start
fi
increment flock
increment fcntl
[ "$GUEST" = 1 ] || return 0
guest wait
same "$each $each" "$(cat "$D/flock")" 'increments of both guests under flock'
same "$each $each" "$(cat "$D/fcntl")" 'increments of both guests under fcntl locks'
