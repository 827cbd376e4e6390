# test: four writers with O_APPEND lose nothing; the other mount sees all of it
"$PROBE" append "$D/log" 300
mount_other
same "$(sha256sum <"$D/log")" "$(sha256sum <"/run/other/$TEST/log")"
# Close-to-open: what one appended and closed, the other appends to.
for turn in 1 2 3 4 5; do
    echo "a$turn" >>"$D/turns"
    echo "b$turn" >>"/run/other/$TEST/turns"
done
same 'a1 b1 a2 b2 a3 b3 a4 b4 a5 b5' "$(tr '\n' ' ' <"$D/turns" | sed 's/ $//')"
umount /run/other
