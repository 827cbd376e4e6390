# test: extended attributes are kept in v4.2; they fail cleanly elsewhere, as ACLs do in v4, and mode bits stay what they were
# versions: 3 4.1 4.2
cd "$D"
echo text >file; chmod 640 file
# A file system keeps them, or says so: then what was set must be what is read.
kept() { # NAME
    if setfattr -n "$1" -v value file 2>said; then
        same value "$(getfattr --only-values -n "$1" file)" "$1"
        setfattr -x "$1" file
    else
        grep -q 'Operation not supported' said || fail "$1: $(cat said)"
        refused 'Operation not supported' getfattr -n "$1" file
    fi
}
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
fi
kept user.name
kept trusted.name
getfattr -d file >list || fail 'a listing fails'
same '' "$(cat list)"
if setfacl -m u:1234:rw file 2>said; then
    getfacl --omit-header file | grep -qx 'user:1234:rw-' || fail 'an ACL that was set is not there'
    setfacl -b file
else
    grep -q 'Operation not supported' said || fail "setfacl: $(cat said)"
fi
same 640 "$(stat -c %a file)"
same text "$(cat file)"
getfacl --omit-header file | grep -qx 'user::rw-'
cp --preserve=all file copy || fail 'cp --preserve=all fails'
same 640 "$(stat -c %a copy)"
