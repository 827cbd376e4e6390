# test: small files over a link with a delay: enfys's commands, the kernel's mount and other clients, in one guest
# versions: 3 4.1 4.2
# limit: 1800
# takes: 600
# Prints medians in seconds, for round trips of 0 and 10 ms. The tree has FILES files of 4 KiB in 20 directories. `--set NAME=VALUE` of
# `cargo xtask kernel` changes FILES, ROUNDS, KERNEL_ROUNDS (the kernel's mount is slow over a long link) and DELAYS (with underscores).
# nfs-rs and libnfs always use version 3, in which both can do all of the work with each server. Their times are without the start of
# their process (0.1 s here), without connecting except in `up`, and without their check of the data. The program with nfs-rs knows
# the tree: it lists its directories only for `find`.
FILES=${FILES:-2000} ROUNDS=${ROUNDS:-5} DELAYS=${DELAYS:-0_10}
KERNEL_ROUNDS=${KERNEL_ROUNDS:-$ROUNDS}
modprobe -d /run/modules sch_netem
case $VERSION in
    3) options="version=3&port=$PORT&mountport=$MOUNT_PORT" ;;
    *) options="version=$VERSION&port=$PORT" ;;
esac
url="nfs://$SERVER$(export_root)/export/$TEST"

mkdir "$L/tree"
for directory in $(seq 20); do
    mkdir "$L/tree/$directory"
    for file in $(seq $((FILES / 20))); do head -c 4096 /dev/urandom >"$L/tree/$directory/$file"; done
done

# timed NAME COMMAND…: appends the microseconds that the command takes to the file of its name.
timed() {
    local name=$1 started
    shift
    started=${EPOCHREALTIME/./}
    "$@" >"$L/output"
    echo $((${EPOCHREALTIME/./} - started)) >>"$L/time.$name"
}
median() {
    if [ ! -e "$L/time.$1" ]; then echo -; return; fi
    sort -n "$L/time.$1" | awk '{ all[NR] = $1 } END { printf "%.4f", all[int((NR + 1) / 2)] / 1e6 }'
}

# The tree came back as it is, from a server that has it alone.
came_back() {
    diff -r "$L/tree" "$L/down" || fail "$1: another tree came back"
    rm -r "$L/down"
}
found_all() { same "$FILES" "$(wc -l <"$L/output")" "$1: files found"; }
removed() { [ ! -e "$D/$1" ] || fail "$1: the tree is still there"; }

kernel_round() {
    timed kernel.up sh -c "cp -r '$L/tree' '$D/kernel' && sync -f '$D/kernel'"
    remount
    timed kernel.down cp -r "$D/kernel" "$L/down"
    came_back kernel
    remount
    timed kernel.find find "$D/kernel" -type f -size +1k
    found_all kernel
    remount
    timed kernel.rm rm -r "$D/kernel"
    removed kernel
}

enfys_round() {
    timed enfys.up "$CLIENT" cp -r "$L/tree" "$url/enfys?$options"
    timed enfys.down "$CLIENT" cp -r "$url/enfys?$options" "$L/down"
    came_back enfys
    timed enfys.find "$CLIENT" find "$url/enfys?$options" -type f -size +1k
    found_all enfys
    timed enfys.rm "$CLIENT" rm -r "$url/enfys?$options"
    remount
    removed enfys
}

# peer_round NAME PROGRAM ARGUMENT…: a program that prints the seconds of each work, and checks what it reads.
peer_round() {
    local name=$1 work seconds
    shift
    if [ ! -x "$1" ]; then return; fi
    if ! "$@" >"$L/output" 2>"$L/error"; then
        echo "$name failed: $(tail -1 "$L/error")"
        return
    fi
    while read -r work seconds; do
        awk -v seconds="$seconds" 'BEGIN { printf "%d\n", seconds * 1e6 }' >>"$L/time.$name.$work"
    done <"$L/output"
}

for delay in ${DELAYS//_/ }; do
    tc qdisc replace dev vec0 root netem limit 100000 delay "${delay}ms"
    rm -f "$L"/time.*
    echo "round trip $(round_trip) s, $FILES files, NFS $VERSION, $ROUNDS rounds ($KERNEL_ROUNDS of the kernel)"
    for round in $(seq "$ROUNDS"); do
        enfys_round
        peer_round nfs-rs "$PEERS/small-files-peer" \
            "nfs://$SERVER$KNFSD_ROOT/export?version=3&nfsport=$PORT&mountport=$MOUNT_PORT" "$L/tree"
        peer_round libnfs "$PEERS/small-files-libnfs" "$SERVER" "$PORT" "$MOUNT_PORT" "$KNFSD_ROOT/export" "$L/tree"
        [ "$round" -gt "$KERNEL_ROUNDS" ] || kernel_round
    done
    echo "| work | enfys | kernel | kernel / enfys | nfs-rs | libnfs |"
    for work in up down rm find; do
        enfys=$(median enfys.$work) kernel=$(median kernel.$work)
        ratio=$(awk -v kernel="$kernel" -v enfys="$enfys" 'BEGIN { printf "%.1f", kernel / enfys }')
        echo "| $work | $enfys | $kernel | $ratio | $(median nfs-rs.$work) | $(median libnfs.$work) |"
    done
done
tc qdisc del dev vec0 root
