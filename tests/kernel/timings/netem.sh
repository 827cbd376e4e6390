# test: the bench's packet link beside netem: round trip, loss, and the rate of one TCP connection, in one guest
# versions: 4.1
# limit: 900
# takes: 240
# Two namespaces are joined once by the link (`enfys bench link`), and once by a pair of virtual devices with netem at both ends. A
# program at each end measures: the round trip of 50 datagrams, the part of 1,000 datagrams that is lost, and the seconds that a TCP
# connection takes to bring 4 MB. Prints medians. netem must not see packets that are larger than the wire's: segments are not joined.
ROUNDS=${ROUNDS:-5}
for module in tun veth sch_netem; do modprobe -d /run/modules "$module"; done
[ -e /dev/net/tun ] || { mkdir -p /dev/net && mknod -m 666 /dev/net/tun c 10 200; }
cat >"$L/measure.py" <<'PY'
import socket, statistics, sys, threading, time
BYTES, TRIPS, DATAGRAMS = 4_000_000, 50, 1_000

def serve(address):
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    udp.bind((address, 7001))
    arrived = set()
    def datagrams():
        while True:
            data, sender = udp.recvfrom(2000)
            if data.startswith(b"count"):
                arrived.add(data)
            else:
                udp.sendto(data, sender)
    threading.Thread(target=datagrams, daemon=True).start()
    listener = socket.create_server((address, 7000))
    while True:
        connection, _ = listener.accept()
        with connection:
            asked = connection.recv(1)
            if asked == b"d":
                connection.sendall(bytes(BYTES))
            elif asked == b"c":
                connection.sendall(str(len(arrived)).encode())
                arrived.clear()

def ask(address, what):
    with socket.create_connection((address, 7000)) as connection:
        connection.sendall(what)
        parts = []
        while part := connection.recv(1 << 20):
            parts.append(part)
        return b"".join(parts)

def measure(address):
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.settimeout(1)
    udp.connect((address, 7001))
    times = []
    for number in range(TRIPS):
        started = time.monotonic()
        udp.send(str(number).encode())
        try:
            while udp.recv(100) != str(number).encode():
                pass
            times.append(time.monotonic() - started)
        except TimeoutError:
            pass
    ask(address, b"c")
    for number in range(DATAGRAMS):
        udp.send(b"count%d" % number)
        time.sleep(0.001)
    time.sleep(0.5)
    arrived = int(ask(address, b"c"))
    started = time.monotonic()
    assert len(ask(address, b"d")) == BYTES
    print(statistics.median(times) * 1e3, (DATAGRAMS - arrived) * 100 / DATAGRAMS, time.monotonic() - started)

serve(sys.argv[2]) if sys.argv[1] == "serve" else measure(sys.argv[2])
PY
# by_link DELAY RATE LOSS SEED and by_netem: print what was measured.
by_link() {
    "$CLIENT" bench link --delay "$1" --rate "$2" --loss "$3" --seed "$4" --server "python3 '$L/measure.py' serve 10.77.0.1" \
        --ready-port 7000 -- python3 "$L/measure.py" measure 10.77.0.1 2>"$L/link"
}
by_netem() {
    local half end
    half=$(awk "BEGIN { print ${1%ms} / 2 }")ms
    ip netns add far
    ip netns add near
    ip link add far netns far type veth peer name near netns near
    for end in far near; do
        ip -n "$end" link set lo up
        ip -n "$end" link set "$end" gso_max_segs 1 up
        ip netns exec "$end" tc qdisc add dev "$end" root netem limit 1000 delay "$half" rate "$2" loss "$3"
    done
    ip -n far address add 10.77.0.1/24 dev far
    ip -n near address add 10.77.0.2/24 dev near
    ip netns exec far python3 "$L/measure.py" serve 10.77.0.1 &
    server=$!
    until_true ip netns exec near python3 -c 'import socket; socket.create_connection(("10.77.0.1", 7000))'
    ip netns exec near python3 "$L/measure.py" measure 10.77.0.1
    kill "$server"
    wait "$server" || true
    ip netns del far
    ip netns del near
}
# median FILE FIELD
median() { awk -v field="$2" '{ print $field }' "$1" | sort -n | awk '{ all[NR] = $1 } END { printf "%.3f", all[int((NR + 1) / 2)] }'; }

echo '| delay | rate | loss | | round trip (ms) | lost (%) | seconds for 4 MB |'
for setting in 0ms:20mbit:0% 10ms:20mbit:0% 40ms:20mbit:0% 10ms:20mbit:1%; do
    IFS=: read -r delay rate loss <<<"$setting"
    rm -f "$L"/values.*
    for number in $(seq "$ROUNDS"); do
        # Each is first in every other round.
        [ $((number % 2)) = 0 ] || by_link "$delay" "$rate" "$loss" "$number" >>"$L/values.link"
        by_netem "$delay" "$rate" "$loss" >>"$L/values.netem"
        [ $((number % 2)) = 1 ] || by_link "$delay" "$rate" "$loss" "$number" >>"$L/values.link"
    done
    for kind in link netem; do
        same "$ROUNDS" "$(wc -l <"$L/values.$kind")" "results of $kind"
        echo "| $delay | $rate | $loss | $kind | $(median "$L/values.$kind" 1) | $(median "$L/values.$kind" 2) | $(median "$L/values.$kind" 3) |"
    done
done
