# test: the server is killed with -9 again and again and started anew: a copy, and programs that change names, never notice
# versions: 3 4.0 4.1
# Not 4.2, whose names and restarts are those of 4.1: it takes minutes. `restart` kills the server under load there.
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
# Changes names until it is told to stop, or the first one fails: what was done before a kill must not fail behind it.
change_names() { # DIRECTORY
    local i=0
    mkdir "$1"
    set -o noclobber
    until [ -e "$L/enough" ]; do
        i=$((i + 1))
        mkdir "$1/d$i"
        echo "$i" >"$1/d$i/file"
        ln "$1/d$i/file" "$1/link$i"
        mv "$1/link$i" "$1/moved$i"
        ln -s "$1/moved$i" "$1/symlink$i"
        mkfifo "$1/fifo$i"
        same "$i" "$(cat "$1/symlink$i")"
        rm "$1/fifo$i" "$1/symlink$i" "$1/d$i/file"
        rmdir "$1/d$i"
    done
    same "$i" "$(find "$1" -type f | wc -l)" 'files left'
}
workers=()
for worker in 1 2 3 4 5 6; do change_names "$D/names$worker" & workers+=($!); done
for _ in 1 2 3 4 5 6; do
    sleep 4
    server restart
done
touch "$L/enough"
for worker in "${workers[@]}"; do wait "$worker" || fail 'a change of names failed'; done
# Of several that want one lock, one is told that it has it.
take_locks() { # NAME
    for i in $(seq 150); do
        if mkdir "$D/lock$i" 2>/dev/null; then echo "$1" >>"$L/lock$i"; fi
    done
}
workers=()
for worker in 1 2 3 4; do take_locks "$worker" & workers+=($!); done
for _ in 1 2 3; do
    sleep 1.5
    server restart
done
for worker in "${workers[@]}"; do wait "$worker" || fail 'a program that takes locks failed'; done
for i in $(seq 150); do same 1 "$(wc -l <"$L/lock$i")" "holders of lock $i"; done
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
