# test: dd with O_DIRECT, O_SYNC and O_DSYNC writes and reads correctly
# versions: 2 3 4.0 4.1 4.2
# exports: sync async
# takes: 20
head -c 9000007 /dev/urandom >"$L/source"
check() {
    remount
    same_file "$L/source" "$D/$1"
    if on_host; then same "$(sha256sum <"$L/source")" "$(host "sha256sum <\$H/$1")" "$1 on the server's disk"; fi
}
dd if="$L/source" of="$D/sync" bs=100000 oflag=sync status=none; check sync
dd if="$L/source" of="$D/dsync" bs=1M oflag=dsync status=none; check dsync
dd if="$L/source" of="$D/direct" bs=1M oflag=direct status=none; check direct
# NFS requires no alignment of direct transfers.
dd if="$L/source" of="$D/odd" bs=70001 oflag=direct status=none; check odd
for flags in direct 'direct,sync'; do
    for size in 4096 1M 3000001; do
        dd if="$D/direct" iflag="$flags" bs="$size" status=none | cmp - "$L/source" || fail "iflag=$flags bs=$size"
    done
done
# In the middle of a file: around the cache, then through it.
printf 0123456789abcdef | dd of="$D/direct" bs=16 seek=4321 conv=notrunc oflag=direct status=none
printf 0123456789abcdef | dd of="$L/source" bs=16 seek=4321 conv=notrunc status=none
same_file "$L/source" "$D/direct"
dd if=/dev/zero of="$D/direct" bs=1000 count=3 seek=8000 conv=notrunc,fsync status=none
dd if=/dev/zero of="$L/source" bs=1000 count=3 seek=8000 conv=notrunc status=none
check direct
# Past the end there are no data, and a hole reads as zeros.
same 0 "$(dd if="$D/direct" iflag=direct bs=1M skip=20 status=none | wc -c)"
printf end | dd of="$D/hole" bs=1 seek=3000000 oflag=direct conv=notrunc status=none
same 3000003 "$(stat -c %s "$D/hole")"
head -c 3000000 "$D/hole" | cmp - <(head -c 3000000 /dev/zero)
