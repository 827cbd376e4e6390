# test: a mount with four connections uses them all in one session, and programs do not notice a killed server
# versions: 4.1 4.2
# backends: local
# takes: 20
cd /
umount /run/nfs
mount_export /run/nfs '' nconnect=4
cd "$D"
connections() { of_client 10.99.0.2 group_concat 'sessions[0].connections'; }
all() { # runs `$1 N` for each of eight numbers, all at once
    local number running=()
    for number in $(seq 8); do "$1" "$number" & running+=($!); done
    for number in "${running[@]}"; do wait "$number" || return 1; done
}
fill() { head -c 8000000 "$L/data" | tail -c $(($1 * 900000)) >"$D/$1" && sync "$D/$1"; }
judge() { head -c 8000000 "$L/data" | tail -c $(($1 * 900000)) | cmp - "$D/$1"; }
head -c 8000000 /dev/urandom >"$L/data"
all fill
if [ -n "$ENFYS" ]; then
    same 4 "$(connections)" 'connections of the one session'
    same 0 "$(of_client 10.99.0.2 group_concat 'sessions[1]')" 'a second session'
fi
# The files are rewritten while the server is killed; all connections return to the new one.
all fill & filling=$!
sleep 0.3
server restart
wait "$filling" || fail 'a program noticed'
echo 3 >/proc/sys/vm/drop_caches
all judge
[ -z "$ENFYS" ] || same 4 "$(connections)" 'connections after the restart'
rm "$D"/[1-8]
