# test: 10,000 files in one directory, listed while others come and go: none that stays is skipped or repeated
# limit: 240
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
    # And by a program on the server's machine.
    host 'touch "$H/go"; for n in $(seq 3000); do : >"$H/large/$n-host"; rm "$H/large/$n-host"; done; rm "$H/go"' &
    while [ ! -e "$D/go" ]; do sleep 0.1; done
    ls -U "$D/large" | grep keep- | sort | uniq -c | awk '$1 != 1 { print; bad = 1 } END { exit bad || NR != 10000 }' ||
        fail 'a listing skips or repeats what stays'
    wait $!
fi
rm -rf "$D/large"
