# test: small files over a link with a delay: enfys's commands beside the kernel's mount, in one guest
# versions: 3 4.1 4.2
# backends: local
# limit: 600
# takes: 600
# Prints medians of ROUNDS rounds in seconds, for round trips of 0 and 10 ms. The tree has FILES files of 4 KiB in 20 directories.
FILES=${FILES:-2000} ROUNDS=${ROUNDS:-3}
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

# timed NAME COMMAND…: appends the seconds that the command takes to the file of its name.
timed() {
    local name=$1 started
    shift
    started=$(date +%s%N)
    "$@" >"$L/output"
    echo $(($(date +%s%N) - started)) >>"$L/time.$name"
}
median() { sort -n "$L/time.$1" | awk '{ all[NR] = $1 } END { printf "%.3f", all[int((NR + 1) / 2)] / 1e9 }'; }

kernel_round() {
    timed kernel.up sh -c "cp -r '$L/tree' '$D/kernel' && sync -f '$D/kernel'"
    remount
    timed kernel.down cp -r "$D/kernel" "$L/down"
    rm -r "$L/down"
    remount
    timed kernel.find find "$D/kernel" -size +1k
    remount
    timed kernel.rm rm -r "$D/kernel"
}

enfys_round() {
    timed enfys.up "$CLIENT" cp -r "$L/tree" "$url/enfys?$options"
    timed enfys.down "$CLIENT" cp -r "$url/enfys?$options" "$L/down"
    rm -r "$L/down"
    timed enfys.find "$CLIENT" find "$url/enfys?$options" -size +1k
    timed enfys.rm "$CLIENT" rm -r "$url/enfys?$options"
}

for delay in 0 10; do
    tc qdisc replace dev vec0 root netem limit 100000 delay "${delay}ms"
    rm -f "$L"/time.*
    for _ in $(seq "$ROUNDS"); do
        timed round_trip bash -c "exec 3<>/dev/tcp/$SERVER/$PORT"
        enfys_round
        kernel_round
    done
    echo "round trip $(median round_trip) s (with a process), $FILES files, NFS $VERSION"
    for work in up down find rm; do
        echo "$work: enfys $(median enfys.$work) s, kernel $(median kernel.$work) s"
    done
done
tc qdisc del dev vec0 root
