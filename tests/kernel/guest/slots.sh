# test: hundreds of programs on one mount have a request each under way, though the client asks for 64 slots
# versions: 4.1 4.2
# limit: 240
programs=540
# The most requests that were ever under way over this connection. The client gives a request the session's slot before the
# transport's, which this counts.
most_at_once() {
    awk '$1 == "device" { ours = $5 == "/run/nfs" } ours && $1 == "xprt:" { print $13 }' /proc/self/mountstats
}
same 64 "$(cat /sys/module/nfs/parameters/max_session_slots)" 'slots that the client asks for'
head -c $((4096 * 30)) /dev/zero >"$D/file"
modprobe -d /run/modules sch_netem
# So slow a network that they wait for answers at once; how many, depends on how fast the guest starts them.
tc qdisc add dev vec0 root netem delay 1s limit 100000
readers=()
for _ in $(seq $programs); do
    dd if="$D/file" of=/dev/null bs=4096 iflag=direct status=none &
    readers+=($!)
done
wait "${readers[@]}"
tc qdisc del dev vec0 root
[ "$(most_at_once)" -gt 256 ] || fail "$(most_at_once) requests at once of $programs programs"
