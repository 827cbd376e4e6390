# test: four writers with O_APPEND lose nothing; the other mount sees all of it
# versions: 2 3 4.0 4.1 4.2
# exports: sync async
"$PROBE" append "$D/log" 300
mount_other
same "$(sha256sum <"$D/log")" "$(sha256sum <"/run/other/$TEST/log")"
# Close-to-open: one client appends to a file that the other has appended to and closed.
# The other opens the directory before it looks the file up. Linux's version 3 client (6.1) leaves a name's verifier unset
# (nfs_set_verifier_locked) if the reply to its LOOKUP is the first to show that the directory has changed, and a stale value may look
# like a delegation. The next open of the name then sends nothing, and appends over unseen data. It does so against NFS-Ganesha too
# (226 of 2500 new files there, 218 here, none once the directory has been opened).
turns=100
: >>"$D/turns"
ls "/run/other/$TEST" >/dev/null
for turn in $(seq $turns); do
    echo "a$turn" >>"$D/turns"
    # One of the first two lines is written under a delegation: the other client's, if the back channel of the first is not ready.
    # Linux's client (6.1) may return a delegation before it has written its dirty data. The WRITE after DELEGRETURN gets BAD_STATEID
    # and is repeated by the open, over the data that the next client has appended: three of some 1,300 files lost a line.
    [ "$turn" -gt 1 ] || sync "$D/turns"
    echo "b$turn" >>"/run/other/$TEST/turns"
    [ "$turn" -gt 1 ] || sync "/run/other/$TEST/turns"
done
for turn in $(seq $turns); do echo "a$turn"; echo "b$turn"; done >"$L/turns"
diff "$L/turns" "$D/turns" || fail 'what one appended is not where the other goes on'
umount /run/other
