# test: getfacl and setfacl over version 3's side protocol; ACLs grant, limit and are inherited
# versions: 3
cd "$D"
chmod 755 .
echo text >file; chmod 640 file
listed() { getfacl --omit-header --numeric "$1" | grep -v '^$' | sort | xargs; }
same 'group::r-- other::--- user::rw-' "$(listed file)" 'what the mode says'
refused 'Permission denied' as_user 1234 1234 '' cat file
setfacl -m u:1234:rw,g:2001:r file
same 'group:2001:r-- group::r-- mask::rw- other::--- user:1234:rw- user::rw-' "$(listed file)"
same 660 "$(stat -c %a file)" 'the mask shows as the mode of the group'
same text "$(as_user 1234 1234 '' cat file)"
as_user 1234 1234 '' bash -c 'echo more >>file'
same 'text more' "$(as_user 1235 1235 2001 cat file | xargs)" 'by a group'
refused 'Permission denied' as_user 1235 1235 2001 bash -c 'echo x >>file'
remount
cd "$D"
same 'text more' "$(as_user 1234 1234 '' cat file | xargs)" 'after a remount'
setfacl -m m::r file
refused 'Permission denied' as_user 1234 1234 '' bash -c 'echo x >>file'
chmod 600 file
refused 'Permission denied' as_user 1234 1234 '' cat file
same 'group:2001:r-- #effective:--- group::r-- #effective:--- mask::--- other::--- user:1234:rw- #effective:--- user::rw-' "$(listed file)"
refused 'Operation not permitted' as_user 1234 1234 '' setfacl -m u:1234:rwx file
setfacl -b file
same 'group::--- other::--- user::rw-' "$(listed file)"

mkdir directory
setfacl -d -m u:1234:rwx,o::- directory
for kind in file exclusive; do
    case $kind in
        file) (umask 077; : >directory/file) ;;
        exclusive) (umask 077; set -C; : >directory/exclusive) ;;
    esac
    getfacl --omit-header --numeric "directory/$kind" | grep -q '^user:1234:rwx' || fail "$kind inherited nothing"
    same '0' "$(stat -c %a "directory/$kind" | tail -c 2)" "others' bits of a $kind"
done
mkdir directory/inner
getfacl --omit-header --numeric directory/inner | grep -qx 'default:user:1234:rwx' || fail 'the default list was not inherited'
if on_host; then
    same "$(host 'getfacl -cn "$H/directory/inner"' | grep -v '^$' | sort | xargs)" "$(listed directory/inner)" 'what the server has'
fi
setfacl -k directory
getfacl --omit-header directory | grep -q ^default && fail 'a default list stays'
cp --preserve=all directory/file copy
same "$(listed directory/file)" "$(listed copy)" 'a copy that preserves'
