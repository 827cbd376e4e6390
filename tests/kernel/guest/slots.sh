# test: hundreds of threads on one mount have one request each in progress, although the client asks for 64 slots
# versions: 4.1 4.2
# takes: 30
readers=540
# Prints the maximum number of requests in progress over this connection. The client takes the session's slot before the transport's,
# which this counts.
most_at_once() {
    awk '$1 == "device" { ours = $5 == "/run/nfs" } ours && $1 == "xprt:" { print $13 }' /proc/self/mountstats
}
same 64 "$(cat /sys/module/nfs/parameters/max_session_slots)" 'slots that the client asks for'
# The server offers more slots in its replies as they are used, so each thread reads several times.
head -c $((4096 * 8)) /dev/zero >"$D/file"
modprobe -d /run/modules sch_netem
# The network is so slow that the requests wait for replies at the same time.
tc qdisc add dev vec0 root netem delay 1s limit 100000
"$PROBE" reads "$D/file" $readers
tc qdisc del dev vec0 root
[ "$(most_at_once)" -gt 256 ] || fail "$(most_at_once) requests at once of $readers threads"
