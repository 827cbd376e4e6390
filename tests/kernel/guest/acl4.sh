# test: version 4's ACLs: the server's ACL is shown, and a shown ACL can be set
# versions: 4.1 4.2
cd "$D"
echo text >from; echo text >to; chmod 640 from; chmod 600 to
acl() { getfattr --only-values -e base64 -n system.nfs4_acl "$1" | base64 -w0; }
[ -n "$(acl from)" ] || fail 'there is no ACL'
if on_host; then host 'setfacl -m u:1234:rw,g:2001:r "$H/from"' || fail 'no ACLs on this file system'; fi
remount
cd "$D"
if on_host; then same text "$(as_user 1234 1234 '' cat from)" 'by the list'; fi
setfattr -n system.nfs4_acl -v "0s$(acl from)" to
same "$(acl from)" "$(acl to)" 'the list that was set'
same "$(stat -c %a from)" "$(stat -c %a to)"
if on_host; then
    same "$(host 'getfacl -cn "$H/from"')" "$(host 'getfacl -cn "$H/to"')" 'what the server has'
    same text "$(as_user 1234 1234 '' cat to)"
fi
refused 'Permission denied' as_user 1235 1235 '' cat to
refused 'Operation not permitted' as_user 1235 1235 '' setfattr -n system.nfs4_acl -v "0s$(acl from)" to
chmod 600 to
refused 'Permission denied' as_user 1234 1234 '' cat to
cp -a from copy
same text "$(cat copy)"
