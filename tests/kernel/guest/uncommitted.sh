# test: uncommitted data are not lost when the server is killed, although the times are set before the data are sent again
# versions: 3 4.0 4.1 4.2
# exports: sync async
# backends: local
# limit: 300
# takes: 90
head -c 4000000 /dev/urandom >"$L/original"
touch -d '2001-02-03 04:05:06.789 UTC' "$L/original"
# Otherwise the client sends a COMMIT after the last WRITE.
mount_export /run/eager /export write=eager,nosharecache
"$PROBE" uncommitted "$L/original" "/run/eager/$TEST/copy" "$L/sent" "$L/go" & copier=$!
until_true test -e "$L/sent"
same 4000000 "$(host 'stat -c %s "$H/copy"')" 'bytes that the server has'
same 0 "$(operations COMMIT /run/eager)" 'COMMITs before the server is killed'
# The second writing must not fall into the same second as the first.
sleep 1.1
killed=$(date +%s)
server restart
touch "$L/go"
wait "$copier" || fail 'the program did not survive'
remount
same_file "$L/original" "$D/copy"
same "$(sha256sum <"$L/original")" "$(host 'sha256sum <"$H/copy"')" "on the server's disk"
# Linux's client sets the times and then sends the content again, to Linux's own server too; otherwise the times are the ones set.
modified=$(stat -c %.9Y "$D/copy")
[ "$modified" = "$(stat -c %.9Y "$L/original")" ] || [ "${modified%.*}" -ge "$killed" ] || fail "a time that nobody has set: $modified"
umount /run/eager
