# test: the mount of enfys and the kernel's, side by side in one guest: fio, small files, trees, git, and a build
# versions: 3 4.1 4.2
# limit: 1800
# takes: 900
# Prints medians for round trips of 0 and 10 ms: rates of fio in KiB/s, all else in seconds. Caches are empty before each work that
# reads; the copy to the server includes unmounting and mounting again, since unmounting sends the last data. `--set NAME=VALUE` of `cargo xtask kernel` changes FILES, ROUNDS and DELAYS (with underscores).
FILES=${FILES:-200} ROUNDS=${ROUNDS:-5} DELAYS=${DELAYS:-0_10}
SECONDS_OF_FIO=${SECONDS_OF_FIO:-5}
modprobe -d /run/modules sch_netem
modprobe -d /run/modules fuse
[ -e /dev/fuse ] || mknod -m 666 /dev/fuse c 10 229
case $VERSION in
    3) options="port=$PORT,mountport=$MOUNT_PORT" ;;
    *) options="port=$PORT" ;;
esac
O=/run/enfys-mount
mkdir -p "$O"
mount_ours() { "$CLIENT" mount "nfs://$SERVER$(export_root)/export" "$O" -o "vers=$VERSION,$options" >/dev/null; }
remount_ours() {
    cd /
    umount "$O"
    mount_ours
    cd "$L"
}
mount_ours

# A tree to copy, with FILES files of 4 KiB.
mkdir "$L/tree"
for directory in $(seq 10); do
    mkdir "$L/tree/$directory"
    for file in $(seq $((FILES / 10))); do head -c 4096 /dev/urandom >"$L/tree/$directory/$file"; done
done
# A repository with the same files.
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
git config --global safe.directory '*'
git init --quiet --initial-branch=main "$L/repository"
cp -r "$L/tree" "$L/repository"
git -C "$L/repository" add --all
git -C "$L/repository" commit --quiet --message files
# A C program of 20 parts.
mkdir "$L/program"
{
    echo 'OBJECTS := $(patsubst %,part%.o,'"$(seq -s ' ' 20)"')'
    echo 'lib.a: $(OBJECTS) ; ar rcs $@ $^'
    echo '%.o: %.c parts.h ; $(CC) -c -o $@ $<'
} >"$L/program/Makefile"
for part in $(seq 20); do
    echo "int part$part(void);" >>"$L/program/parts.h"
    printf '#include "parts.h"\nint part%s(void) { return %s; }\n' "$part" "$part" >"$L/program/part$part.c"
done
# Creates, stats, reads or removes FILES files in one process, and prints the seconds.
cat >"$L/files.py" <<'PY'
import os, sys, time
work, directory, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
names = [f"{directory}/{number}" for number in range(count)]
started = time.monotonic()
for name in names:
    if work == "create":
        with open(name, "wb", buffering=0) as file:
            file.write(b"x" * 4096)
    elif work == "stat":
        assert os.stat(name).st_size == 4096
    elif work == "read":
        with open(name, "rb", buffering=0) as file:
            assert len(file.read(4096)) == 4096
    else:
        os.unlink(name)
print(time.monotonic() - started)
PY

# record NAME VALUE: adds a measurement.
record() { echo "$2" >>"$L/value.$1"; }
median() { sort -g "$L/value.$1" | awk '{ all[NR] = $1 } END { printf "%.4g", all[int((NR + 1) / 2)] }'; }
# timed NAME COMMAND…: records the seconds that the command takes.
timed() {
    local name=$1 started
    shift
    started=${EPOCHREALTIME/./}
    "$@" >"$L/output"
    record "$name" "$(awk -v us=$((${EPOCHREALTIME/./} - started)) 'BEGIN { print us / 1e6 }')"
}
# fio_rate NAME DIRECTORY KIND: records KiB/s of reads or writes of 4 KiB of one process; writes end with fsync.
fio_rate() {
    fio --name=f --filename="$2/fio" --rw="$3" --bs=4k --size=32m --ioengine=psync --runtime="$SECONDS_OF_FIO" --end_fsync=1 \
        --randrepeat=1 --output-format=json --output="$L/fio.json"
    record "$1" "$(sqlite3 :memory: "SELECT max(j -> 'read' ->> 'bw', j -> 'write' ->> 'bw')
        FROM (SELECT readfile('$L/fio.json') -> 'jobs' -> 0 AS j)")"
}
copy_to() { # DIRECTORY REMOUNT
    cp -r "$L/tree" "$1"
    "$2"
}
# round NAME DIRECTORY REMOUNT: all works once.
round() {
    local name=$1 dir=$2 again=$3
    mkdir -p "$dir/files"
    fio_rate "$name.write" "$dir" write
    "$again"; fio_rate "$name.read" "$dir" read
    "$again"; fio_rate "$name.randread" "$dir" randread
    fio_rate "$name.randwrite" "$dir" randwrite
    rm "$dir/fio"
    for work in create stat read remove; do
        "$again"
        record "$name.$work-files" "$(python3 "$L/files.py" "$work" "$dir/files" "$FILES")"
    done
    # Unmounting sends what is not sent yet.
    timed "$name.cp-to" copy_to "$dir/tree" "$again"
    timed "$name.cp-from" cp -r "$dir/tree" "$L/down"
    diff -r "$L/tree" "$L/down" || fail "$name: another tree came back"
    "$again"; timed "$name.find" find "$dir/tree" -type f -size +1k
    same "$FILES" "$(wc -l <"$L/output")" "$name: files found"
    "$again"; timed "$name.rm" rm -r "$dir/tree"
    rm -r "$L/down"
    git clone --quiet "$L/repository" "$dir/clone"
    "$again"; timed "$name.git-status" git -C "$dir/clone" status --porcelain
    same '' "$(cat "$L/output")" "$name: a fresh clone has changes"
    cp -r "$L/program" "$dir/program"
    "$again"; timed "$name.build" make --silent -C "$dir/program"
    rm -r "$dir/clone" "$dir/program" "$dir/files"
}

for delay in ${DELAYS//_/ }; do
    tc qdisc replace dev vec0 root netem limit 100000 delay "${delay}ms"
    rm -f "$L"/value.*
    echo "round trip $(round_trip) s, $FILES files, NFS $VERSION, $ROUNDS rounds"
    for number in $(seq "$ROUNDS"); do
        # Each is first in every other round.
        [ $((number % 2)) = 0 ] || round enfys "$O/$TEST" remount_ours
        round kernel "$D" remount
        [ $((number % 2)) = 1 ] || round enfys "$O/$TEST" remount_ours
    done
    echo '| work | enfys | kernel | enfys better by |'
    for work in write read randwrite randread create-files stat-files read-files remove-files cp-to cp-from find rm git-status build; do
        enfys=$(median "enfys.$work") kernel=$(median "kernel.$work")
        case $work in *write | *read | *randread) better="$enfys / $kernel" ;; *) better="$kernel / $enfys" ;; esac
        echo "| $work | $enfys | $kernel | $(awk "BEGIN { printf \"%.2f\", $better }") |"
    done
done
tc qdisc del dev vec0 root
umount "$O"
