# test: 10,000 files in one directory, listed while others come and go: files that stay are neither skipped nor repeated
# versions: 2 3 4.0 4.1
# Not 4.2, which lists as 4.1 does: it takes its time.
# limit: 600
# takes: 80
mkdir "$D/large"
"$PROBE" populate "$D/large" 10000
remount
same 10000 "$(find "$D/large" -type f | wc -l)"
# Changed by this client, then by one that shares no cache with it.
"$PROBE" listing "$D/large" "$D/large" 10000 2
mount_other
"$PROBE" listing "$D/large" "/run/other/$TEST/large" 10000 2
umount /run/other
remount
same 10000 "$(find "$D/large" -type f | wc -l)"
if on_host; then
    # And by a program on the server's machine, until it is stopped.
    host 'n=0; until [ -e "$H/stop" ]; do n=$((n + 1)); : >"$H/large/$n-host"; rm "$H/large/$n-host"; [ $n != 5 ] || : >"$H/begun"; done
        echo $n' >"$L/changes" &
    until_true host '[ -e "$H/begun" ]'
    for round in 1 2 3; do
        # Without --all and --size, ls asks for names only; -U keeps them in the server's order.
        ls -U "$D/large" | grep ^keep- | sort | uniq --count | awk '$1 != 1 { print; bad = 1 } END { exit bad || NR != 10000 }' ||
            fail "listing $round skips or repeats what stays"
    done
    touch "$D/stop"
    wait $!
    [ "$(cat "$L/changes")" -gt 10 ] || fail 'the directory hardly changed'
fi
rm -rf "$D/large"
