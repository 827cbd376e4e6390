# test: holes are punched, found and kept; space is reserved and freed
# versions: 4.2
"$PROBE" holes "$D/file"
remount
cp --sparse=always "$D/file" "$L/copy"
same_file "$D/file" "$L/copy"
fallocate -l 5M "$D/reserved"
same 5242880 "$(stat -c %s "$D/reserved")"
[ "$(du -k "$D/reserved" | cut -f1)" -ge 5120 ] || fail 'nothing was reserved'
fallocate -p -o 0 -l 5M "$D/reserved"
[ "$(du -k "$D/reserved" | cut -f1)" -lt 1024 ] || fail 'nothing was freed'
same 5242880 "$(stat -c %s "$D/reserved")"
# The kernel has asked the server.
grep -E '^[[:space:]]*(SEEK|ALLOCATE|DEALLOCATE): [1-9]' /proc/self/mountstats | wc -l >"$L/asked"
same 3 "$(cat "$L/asked")" 'operations that the client sent'
# A reservation without space fails and takes nothing.
mount_export /run/full /space
refused 'No space left' fallocate -l 200M /run/full/file
rm -f /run/full/file
umount /run/full
