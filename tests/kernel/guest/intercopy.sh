# test: files are copied between two servers without passing through the client, if both servers allow it
# versions: 4.2
# backends: local
# The test's own two servers, because the shared one allows no copies from other servers: .3 is a source and a destination, .4 only a
# destination.
host '
device=$(ip -o -4 addr show to 10.99.0.1 | awk "{ print \$2; exit }")
for number in 3 4; do
    ip addr add 10.99.0.$number/24 dev "$device"
    mkdir -p "$H/$number"
    {
        echo "listen = [\"10.99.0.$number:2049\"]"
        echo "state-dir = \"$H/state.$number\""
        [ $number = 4 ] || echo "copy-source = true"
        echo "copy-from = [\"10.99.0.0/24\"]"
        echo "[[export]]"
        echo "path = \"$H/$number\""
        echo "squash = \"none\""
    } >"$H/$number.toml"
    setsid "$(dirname "$PROBE")/enfys" serve --config "$H/$number.toml" >"$H/$number.log" 2>&1 </dev/null &
    echo $! >"$H/$number.pid"
done
for number in 3 4; do
    for attempt in $(seq 600); do ss -Hltn "src 10.99.0.$number:2049" | grep -q . && break; sleep 0.1; done
done
'
for number in 3 4; do
    mkdir -p "/run/server.$number"
    mount -t nfs -o vers=4.2 "10.99.0.$number:/export" "/run/server.$number"
done
A=/run/server.3 B=/run/server.4
# asked MOUNT OPERATION: prints how often the client has sent the operation there.
asked() {
    awk -v mount="$1" -v wanted="$2:" \
        '$1 == "device" { ours = $5 == mount } ours && $1 == wanted { print $2 }' /proc/self/mountstats
}
head -c 60000001 /dev/urandom >"$L/content"
cp "$L/content" "$A/source"
cp "$A/source" "$B/copied"
[ "$(asked "$A" COPY_NOTIFY)" -gt 0 ] || fail 'the client did not announce a copy'
[ "$(asked "$B" COPY)" -gt 0 ] || fail 'the client did not ask for a copy'
same 0 "$(asked "$B" WRITE)" 'WRITEs at the destination'
# The client must read there what it sees.
echo 3 >/proc/sys/vm/drop_caches
same_file "$L/content" "$B/copied"
host "cmp '$H/3/source' '$H/4/copied'"
# For a user who may read the source and owns the copy; for nobody else.
chmod 644 "$A/source"
chmod 777 "$B"
as_user 1234 1234 '' cp "$A/source" "$B/mine"
same 1234 "$(stat -c %u "$B/mine")" 'the owner'
host "cmp '$H/3/source' '$H/4/mine'"
chmod 600 "$A/source"
refused 'Permission denied' as_user 1234 1234 '' cp "$A/source" "$B/mine"
# If the source or the destination does not allow it, the client copies by itself.
before=$(asked "$A" COPY)
cp "$B/copied" "$A/back"
same "$before" "$(asked "$A" COPY)" 'COPYs of what is not given'
same_file "$L/content" "$A/back"
before=$(operations COPY)
cp "$A/source" "$D/refused"
[ "$(operations COPY)" -gt "$before" ] || fail 'the client did not ask the server that takes nothing'
same_file "$L/content" "$D/refused"
umount "$A" "$B"
host '
kill $(cat "$H/3.pid" "$H/4.pid")
device=$(ip -o -4 addr show to 10.99.0.1 | awk "{ print \$2; exit }")
for number in 3 4; do ip addr del 10.99.0.$number/24 dev "$device"; done
'
rm "$L/content" "$D/refused"
