# test: extended attributes and ACLs, which are not served, fail cleanly, and mode bits stay what they were
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
