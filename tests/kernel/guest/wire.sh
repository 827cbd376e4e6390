# test: tshark, which nobody here wrote, finds nothing malformed in what the server says, and no SERVERFAULT
# versions: 3 4.0 4.1 4.2
# backends: local
# limit: 600
# takes: 30
capture='"$(dirname "$EXPORT")/wire.pcapng"'
# Its buffer holds all that is said, 90 MB in version 4.2: nothing is missed however long it stands still.
host "dumpcap -q -B 192 -i tap0 -w $capture & until [ -e \$H/stop ]; do sleep 0.2; done; kill \$!; wait \$!" >"$L/dumpcap" 2>&1 &
# It makes its file, with a head, when it has begun to listen.
until_true host "[ -s $capture ]"
"$PROBE" tree "$L/original" 150
remount # the mount itself is of interest, too
mount_other
cp -a "$L/original" "$D/tree"
ls -lR "/run/other/$TEST/tree" >/dev/null
df "$D" >/dev/null
"$PROBE" manifest "/run/other/$TEST/tree" >/dev/null
cp -a "/run/other/$TEST/tree" "$D/copy"
"$PROBE" open-files "$D"
mkdir "$D/names"
"$PROBE" exclusive "$D/names" "/run/other/$TEST/names" 10
if [ "$VERSION" != 3 ]; then "$PROBE" locks "$D/lock" "/run/other/$TEST/lock"; fi
dd if=/dev/zero of="$D/zeros" bs=1M count=3 conv=fsync status=none
if [ "$VERSION" != 3 ]; then # what this client holds is called back when the other changes it
    echo held >"$D/recalled"
    same held "$(cat "$D/recalled")"
    echo changed >"/run/other/$TEST/recalled"
    same changed "$(cat "$D/recalled")"
fi
if [ "$VERSION" = 4.2 ]; then
    "$PROBE" copy-range "$D/zeros" "$D/copied"
    # Longer than what is copied before the answer (SEMANTICS.md), holes left out: its end is told.
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
# The client's port is random: some are other protocols' by registration (636 and 989 to 995 are TLS's), and tshark goes by either.
read_capture() { host "tshark -r $capture -n -d tcp.port==2049,rpc -Y '$1' -T fields -e frame.number -e _ws.col.Info 2>/dev/null"; }
replies=$(read_capture 'rpc.msgtyp == 1 && nfs' | wc -l)
[ "$replies" -gt 1000 ] || fail "tshark saw only $replies replies"
# NOENT was answered more than once: without it, the fields below are not what they are taken for.
[ -n "$(read_capture 'nfs.status == 2 || nfs.nfsstat4 == 2')" ] || fail 'tshark sees no error'
seen() { [ -n "$(read_capture "$1")" ] || fail "tshark saw no $2"; }
# CB_RECALL is operation 4 of callbacks in every minor version (RFC 7530 §16.2, RFC 8881 §20.2).
if [ "$VERSION" != 3 ]; then seen 'nfs.cb.operation == 4' CB_RECALL; fi
# CB_OFFLOAD is operation 15 (RFC 7862 §16.1).
if [ "$VERSION" = 4.2 ]; then seen 'nfs.cb.operation == 15' CB_OFFLOAD; fi
if [ "$VERSION" = 4.2 ]; then # RFC 7862 §13 and RFC 8276 §8.4
    for operation in ALLOCATE=59 COPY=60 DEALLOCATE=62 SEEK=69 GETXATTR=72 SETXATTR=73 LISTXATTRS=74 REMOVEXATTR=75; do
        seen "nfs.opcode == ${operation#*=}" "${operation%=*}"
    done
fi
same '' "$(read_capture '_ws.malformed' | head -5)" 'malformed'
# RFC 1813 §2.6 and RFC 8881 §15.1.1.6: what the server has no better word for. Here there always is one.
same '' "$(read_capture 'nfs.status == 10006 || nfs.nfsstat4 == 10006' | head -5)" 'SERVERFAULT'
same '' "$(read_capture 'rpc.state_accept != 0 && rpc.msgtyp == 1 && nfs' | head -5)" 'calls that RPC refused'
host "rm $capture"
