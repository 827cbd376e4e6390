# test: the client follows a referral to another server, and lists the directory that has it
# versions: 4.0 4.1 4.2
# backends: local
# The test's own two servers: .3 refers /data/there to .4.
host '
device=$(ip -o -4 addr show to 10.99.0.1 | awk "{ print \$2; exit }")
for number in 3 4; do
    ip addr add 10.99.0.$number/24 dev "$device"
    mkdir -p "$H/$number"
    {
        echo "listen = [\"10.99.0.$number:2049\"]"
        echo "state-dir = \"$H/state.$number\""
        echo "[[export]]"
        echo "path = \"$H/$number\""
        echo "squash = \"none\""
        [ $number = 4 ] || {
            echo "pseudo = \"/data/here\""
            echo "[[export]]"
            echo "pseudo = \"/data/there\""
            echo "referral = [\"10.99.0.4:/export\"]"
        }
    } >"$H/$number.toml"
    setsid "$(dirname "$PROBE")/enfys" serve --config "$H/$number.toml" >"$H/$number.log" 2>&1 </dev/null &
    echo $! >"$H/$number.pid"
done
for number in 3 4; do
    for attempt in $(seq 600); do ss -Hltn "src 10.99.0.$number:2049" | grep -q . && break; sleep 0.1; done
done
echo from three >"$H/3/file"
mkdir "$H/4/below"
echo from four >"$H/4/below/file"
'
S=/run/server.3
mkdir -p "$S"
mount -t nfs -o "vers=$VERSION" 10.99.0.3:/ "$S"
# READDIR reports MOVED for the entry, and lists it.
same 'here there' "$(ls "$S/data" | xargs)" 'the names'
same 'from three' "$(cat "$S/data/here/file")"
same 'from four' "$(cat "$S/data/there/below/file")"
grep -q "^10.99.0.4:/export $S/data/there nfs4 " /proc/mounts || fail "not mounted from .4: $(grep "$S" /proc/mounts)"
echo new >"$S/data/there/new"
host "cmp '$H/4/new' - <<<new"
[ "$(stat -c %d "$S/data/here")" != "$(stat -c %d "$S/data/there")" ] || fail 'both are one file system'
umount -R "$S"
# A path below the referral can be mounted too.
mount -t nfs -o "vers=$VERSION" 10.99.0.3:/data/there/below "$S"
same 'from four' "$(cat "$S/file")"
umount -R "$S"
# Version 3 has no referrals.
refused mount.nfs mount -t nfs -o vers=3,tcp,nolock,port=2049,mountport=2049,mountproto=tcp 10.99.0.3:/data/there "$S"
host '
kill $(cat "$H/3.pid" "$H/4.pid")
device=$(ip -o -4 addr show to 10.99.0.1 | awk "{ print \$2; exit }")
for number in 3 4; do ip addr del 10.99.0.$number/24 dev "$device"; done
'
