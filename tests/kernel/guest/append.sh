# test: four writers with O_APPEND lose nothing; the other mount sees all of it
"$PROBE" append "$D/log" 300
mount_other
same "$(sha256sum <"$D/log")" "$(sha256sum <"/run/other/$TEST/log")"
# Close-to-open: what one appended and closed, the other appends to. Not in v3: there Linux 6.1 now and then opens a
# file that another client changed without asking for its attributes (a capture shows no GETATTR and no LOOKUP
# between the two WRITEs), and writes at the end that it remembers.
if [ "$VERSION" != 3 ]; then
    for turn in $(seq 100); do
        echo "a$turn" >>"$D/turns"
        echo "b$turn" >>"/run/other/$TEST/turns"
    done
    for turn in $(seq 100); do echo "a$turn"; echo "b$turn"; done >"$L/turns"
    remount
    diff "$L/turns" "$D/turns" || fail 'what one appended is not where the other goes on'
fi
umount /run/other
