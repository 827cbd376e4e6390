# test: the server is killed with -9 in the middle of a copy and started again: the copy ends right
# versions: 3 4.0 4.1
# backends: local
# limit: 300
"$PROBE" tree "$L/original" 1500
head -c 150000000 /dev/urandom >"$L/large"
killed=0
kill_server_during() { # PID
    for _ in 1 2 3; do
        sleep 1.5
        kill -0 "$1" 2>/dev/null || break
        server restart
        killed=$((killed + 1))
    done
    wait "$1" || fail 'the program did not survive'
}
cp -a "$L/original" "$D/tree" & kill_server_during $!
[ "$killed" -ge 1 ] || fail 'the copy ended before the server was killed'
killed=0
# Slow enough to be killed in the middle, and with data that the server has not committed.
(for part in 1 2 3 4 5 6 7 8 9 10; do
    dd if="$L/large" bs=15000000 skip=$((part - 1)) count=1 iflag=fullblock status=none
    sleep 0.4
done >"$D/large") & kill_server_during $!
[ "$killed" -ge 2 ] || fail 'the large copy ended before the server was killed'
remount
same_trees "$L/original" "$D/tree"
same_file "$L/large" "$D/large"
same "$(sha256sum <"$L/large")" "$(host 'sha256sum <"$H/large"')" "on the server's disk"
