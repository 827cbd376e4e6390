# test: tshark finds nothing malformed in the server's messages, and no SERVERFAULT
# versions: 2 3 4.0 4.1 4.2
# backends: local
# limit: 600
# takes: 20
capture='"$(dirname "$EXPORT")/wire.pcapng"'
# Its buffer holds the whole traffic, 90 MB in version 4.2: nothing is lost however long it is stopped.
host "dumpcap -q -B 192 -i tap0 -w $capture & until [ -e \$H/stop ]; do sleep 0.2; done; kill \$!; wait \$!" >"$L/dumpcap" 2>&1 &
# It creates its file, with a header, when it has begun to capture.
until_true host "[ -s $capture ]"
"$PROBE" tree "$L/original" 150
remount # the mount itself is captured too
mount_other
cp -a "$L/original" "$D/tree"
ls -lR "/run/other/$TEST/tree" >/dev/null
df "$D" >/dev/null
"$PROBE" manifest "/run/other/$TEST/tree" >/dev/null
cp -a "/run/other/$TEST/tree" "$D/copy"
"$PROBE" open-files "$D"
mkdir "$D/names"
# Version 2 has no exclusive creation.
[ "$VERSION" = 2 ] || "$PROBE" exclusive "$D/names" "/run/other/$TEST/names" 10
if [ "${VERSION%.*}" = 4 ]; then "$PROBE" locks "$D/lock" "/run/other/$TEST/lock"; fi
if [ "${VERSION%.*}" != 4 ]; then # NLM with a GRANTED, since a local process has the lock; then NSM, since the server restarts
    : >"$D/lock"
    host 'exec 5<>"$H/lock"; python3 -c "
import fcntl, os, sys, time
fcntl.lockf(5, fcntl.LOCK_EX)
open(sys.argv[1], \"w\").close()
while not os.path.exists(sys.argv[2]): time.sleep(0.1)
time.sleep(2)" "$H/locked" "$H/waits"' & holder=$!
    host 'until [ -e "$H/locked" ]; do sleep 0.1; done'
    touch "$D/waits"
    flock "$D/lock" true
    wait "$holder"
    exec 5<>"$D/lock"
    flock -n 5
    server restart
    # It notifies this client at once, which reclaims the lock.
    sleep 5
    exec 5>&-
fi
dd if=/dev/zero of="$D/zeros" bs=1M count=3 conv=fsync status=none
if [ "${VERSION%.*}" = 4 ]; then # what this client holds is called back when the other changes it
    echo held >"$D/recalled"
    same held "$(cat "$D/recalled")"
    echo changed >"/run/other/$TEST/recalled"
    same changed "$(cat "$D/recalled")"
fi
if [ "$VERSION" = 4.2 ]; then
    "$PROBE" copy-range "$D/zeros" "$D/copied"
    # Longer than a copy before the reply (SEMANTICS.md), without holes: it ends with CB_OFFLOAD.
    head -c 24M /dev/zero >"$D/long"
    "$PROBE" copy-range "$D/long" "$D/copied"
    rm "$D/long" "$D/copied"
    setfattr -n user.wire -v value "$D/zeros"
    remount # the client has cached what it has set
    same value "$(getfattr --absolute-names --only-values -n user.wire "$D/zeros")"
    getfattr --absolute-names -d "$D/zeros" | grep -q wire
    setfattr -x user.wire "$D/zeros"
    "$PROBE" holes "$D/holed"
fi
for refused in "cat $D/nothing" "rmdir $D" "mkdir $D/names" "ln -sT x $D/names" "mv -T $D/names $D/tree"; do
    $refused 2>/dev/null && fail "$refused succeeded"
done
rm -rf "$D/tree" "$D/copy"
umount /run/other
sleep 1
touch "$D/stop"
wait $! || fail "dumpcap: $(cat "$L/dumpcap")"
# The client's port is random. Some ports are registered for other protocols (636 and 989 to 995 for TLS), and tshark goes by either end.
# One pass extracts all fields used below: for each frame the values of each field, with commas between them.
fields='frame.number rpc.msgtyp rpc.state_accept nfs nfs.status nfs.nfsstat4 nfs.cb.operation nfs.opcode'
fields+=' nlm.procedure_v4 nlm.procedure_v1 stat.procedure_v1 mount.procedure_v1 mount.procedure_v3 _ws.malformed _ws.col.Info'
frames="$L/frames"
host "tshark -r $capture -n -d tcp.port==2049,rpc -Y 'rpc || _ws.malformed' -T fields -E separator=/t -E occurrence=a -E aggregator=, \
    $(printf -- '-e %s ' $fields) 2>/dev/null" >"$frames" || fail 'tshark cannot read the capture'
# A frame may hold several messages, in one line: each of their values counts.
frames() { # CONDITION: the frames of which it holds: that a field `is` a value, `is_other` than one, or that one `has` the field
    awk -F '\t' -v names="$fields" '
        function field(name) { if (!(name in place)) { failed = 1; exit 1 } return $place[name] }
        function has(name) { return field(name) != "" }
        function is(name, value) { return index("," field(name) ",", "," value ",") > 0 }
        function is_other(name, value,   all, count, at) {
            count = split(field(name), all, ",")
            for (at = 1; at <= count; at++) if (all[at] != value) return 1
            return 0
        }
        BEGIN { for (count = split(names, name, " "); count > 0; count--) place[name[count]] = count }
        '"$1"' { print $place["frame.number"], $place["_ws.col.Info"] }
        END { exit failed }' "$frames" || fail "no such condition: $1"
}
replies=$(frames 'is("rpc.msgtyp", 1) && has("nfs")' | wc -l)
[ "$replies" -gt 1000 ] || fail "tshark saw only $replies replies"
seen() { # CONDITION WHAT
    local found
    found=$(frames "$1") || fail "$found"
    [ -n "$found" ] || fail "tshark saw no $2"
}
# NOENT occurs more than once; otherwise the fields below are not the right ones.
seen 'is("nfs.status", 2) || is("nfs.nfsstat4", 2)' error
# MNT is procedure 1 of MOUNT; LOCK is 2 of NLM, and GRANTED 5 or, as a message, 10 (RFC 1813 Appendices I and II); SM_NOTIFY is 6 of NSM (XNFS).
if [ "${VERSION%.*}" != 4 ]; then
    [ "$VERSION" = 2 ] && mount=mount.procedure_v1 nlm=nlm.procedure_v1 || mount=mount.procedure_v3 nlm=nlm.procedure_v4
    seen "is(\"$mount\", 1)" MNT
    seen "is(\"$nlm\", 2)" LOCK
    seen 'is("stat.procedure_v1", 6)' SM_NOTIFY
    seen "is(\"$nlm\", 5) || is(\"$nlm\", 10)" GRANTED
fi
# CB_RECALL is operation 4 of callbacks in every minor version (RFC 7530 §16.2, RFC 8881 §20.2).
if [ "${VERSION%.*}" = 4 ]; then seen 'is("nfs.cb.operation", 4)' CB_RECALL; fi
# CB_OFFLOAD is operation 15 (RFC 7862 §16.1).
if [ "$VERSION" = 4.2 ]; then seen 'is("nfs.cb.operation", 15)' CB_OFFLOAD; fi
if [ "$VERSION" = 4.2 ]; then # RFC 7862 §13 and RFC 8276 §8.4
    for operation in ALLOCATE=59 COPY=60 DEALLOCATE=62 SEEK=69 GETXATTR=72 SETXATTR=73 LISTXATTRS=74 REMOVEXATTR=75; do
        seen "is(\"nfs.opcode\", ${operation#*=})" "${operation%=*}"
    done
fi
none() { same '' "$(frames "$1" | head -5)" "$2"; }
none 'has("_ws.malformed")' 'malformed'
# RFC 1813 §2.6 and RFC 8881 §15.1.1.6: the status of last resort. Here there is always a better one.
none 'is("nfs.status", 10006) || is("nfs.nfsstat4", 10006)' 'SERVERFAULT'
none 'is_other("rpc.state_accept", 0) && is("rpc.msgtyp", 1) && has("nfs")' 'calls that RPC refused'
host "rm $capture"
