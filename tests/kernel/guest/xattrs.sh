# test: extended attributes of users are kept in v4.2, ACLs in v3; elsewhere they fail cleanly, and mode bits are unchanged
# versions: 3 4.0 4.1 4.2
cd "$D"
echo text >file; chmod 640 file
if [ "$VERSION" = 4.2 ]; then
    setfattr -n user.one -v 'a value' file
    setfattr -n user.two -v 0x00ff file
    setfattr -n user.dir -v value "$D"
    same 'a value' "$(getfattr --only-values -n user.one file)"
    same 'user.one user.two' "$(getfattr --absolute-names file | grep ^user | sort | xargs)"
    printf 'x%.0s' $(seq 2000) >long
    setfattr -n user.one -v "$(cat long)" file
    remount
    cd "$D"
    same "$(cat long)" "$(getfattr --only-values -n user.one file)" 'after a remount'
    refused 'No such attribute' getfattr -n user.three file
    setfattr -x user.two file
    refused 'No such attribute' setfattr -x user.two file
    same value "$(getfattr --only-values -n user.dir "$D")"
    chmod 600 file
    refused 'Permission denied' as_user 1234 1234 '' getfattr -n user.one file
    chmod 640 file
    for name in $(seq 20); do setfattr -n "user.a-rather-long-name-of-an-attribute-$name" -v "$name" "$D"; done
    same 21 "$(getfattr --absolute-names "$D" | grep -c ^user)"
    cp --preserve=all file copy
    same "$(cat long)" "$(getfattr --only-values -n user.one copy)" 'a copy that preserves'
    rm copy
    setfattr -x user.one file
else
    refused 'Operation not supported' setfattr -n user.name -v value file
    refused 'Operation not supported' getfattr -n user.name file
fi
# RFC 8276 §5: only attributes of users.
refused 'Operation not supported' setfattr -n trusted.name -v value file
refused 'Operation not supported' getfattr -n trusted.name file
getfattr -d file >list || fail 'a listing fails'
same '' "$(cat list)"
if [ "$VERSION" = 3 ]; then
    setfacl -m u:1234:rw file
    getfacl --omit-header file | grep -qx 'user:1234:rw-' || fail 'an ACL that was set is not there'
    setfacl -b file
else
    refused 'Operation not supported' setfacl -m u:1234:rw file
fi
same 640 "$(stat -c %a file)"
same text "$(cat file)"
getfacl --omit-header file | grep -qx 'user::rw-'
cp --preserve=all file copy || fail 'cp --preserve=all fails'
same 640 "$(stat -c %a copy)"
