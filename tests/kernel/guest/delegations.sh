# test: delegated files are opened, locked and read without the server; changes by another client are seen at once
# versions: 4.0 4.1 4.2
# takes: 20
files=20
reachable
for file in $(seq $files); do echo "first $file" >"$D/f$file"; done
# The client holds delegations of files that it created: it opens, locks, reads and unlocks each three times.
opens=$(operations OPEN) reads=$(operations READ)
for file in $(seq $files); do
    for _ in 1 2 3; do
        exec 5<"$D/f$file"
        flock --shared 5
        same "first $file" "$(cat <&5)"
        exec 5<&-
    done
done
same 0 "$(operations LOCK)" 'LOCKs that reached the server'
same 0 "$(operations LOCKU)" 'LOCKUs that reached the server'
[ $(($(operations OPEN) - opens)) -le $files ] || fail "$(($(operations OPEN) - opens)) OPENs of $files files"
[ $(($(operations READ) - reads)) -le $files ] || fail "$(($(operations READ) - reads)) READs of $files files"
# The server's counters agree.
if [ -n "$ENFYS" ]; then same $files "$(of_client 10.99.0.2 sum delegations)" 'delegations that the server knows of'; fi

# Another client changes the files: each delegation is returned first, and then the new content is seen.
returns=$(operations DELEGRETURN)
mount_other
for file in $(seq $files); do echo "second $file" >"/run/other/$TEST/f$file"; done
if [ -n "$ENFYS" ]; then
    # This client counts a return when it has the reply.
    add_up() { [ "$files" = $(($(of_client 10.99.0.2 sum delegations) + $(operations DELEGRETURN) - returns)) ]; }
    until_true add_up
fi
for file in $(seq $files); do same "second $file" "$(cat "$D/f$file")"; done
all_are_returned() { [ $(($(operations DELEGRETURN) - returns)) -ge $files ]; }
until_true all_are_returned

# Names too: a file that another client removes or renames is gone here, and an open file stays usable.
echo kept >"$D/open"
exec 6<"$D/open"
rm "/run/other/$TEST/open"
same kept "$(cat <&6)"
exec 6<&-
echo moved >"$D/from"
mv "/run/other/$TEST/from" "/run/other/$TEST/to"
same moved "$(cat "$D/to")"

# An open file has grown here without the server's knowledge: the other client gets the new size.
: >"$D/growing"
exec 7<>"$D/growing"
printf 12345 >&7
same 5 "$(stat --format=%s "/run/other/$TEST/growing")" 'size of a file that another client is writing'
exec 7<&-
umount /run/other
