# test: exports are separate file systems; directories that are not exported are invisible
# versions: 2 3 4.0 4.1 4.2
mount_export /run/space /space
echo here >/run/space/file
echo text >"$D/file"
refused 'Invalid cross-device link' ln "$D/file" /run/space/link
mv "$D/file" /run/space/moved
same text "$(cat /run/space/moved)"
[ ! -e /run/nfs/moved ] || fail 'one export shows in another'
refused mount mount_export /run/none /no-such-export
# In v4 the client itself walks to the parents, and ends in the pseudo file system.
if [ "${VERSION%.*}" -lt 4 ]; then refused mount mount_export /run/none "/export/$TEST/../../.."; fi
if [ "${VERSION%.*}" = 4 ]; then
    # The pseudo file system joins the exports, and is read-only.
    mount_export /run/root /
    for export in export space quota; do ls /run/root | grep -qx "$export" || fail "/$export is not in /"; done
    same here "$(cat /run/root/space/file)"
    [ "$(stat -c %d /run/root/space)" != "$(stat -c %d /run/root/export)" ] || fail 'two exports are one file system'
    refused 'Read-only file system' touch /run/root/new
    umount -R /run/root
fi
# A subdirectory of an export can be mounted.
mkdir "$D/below"; echo deep >"$D/below/file"
mount_export /run/below "/export/$TEST/below"
same deep "$(cat /run/below/file)"
umount /run/below
rm /run/space/file /run/space/moved
umount /run/space
