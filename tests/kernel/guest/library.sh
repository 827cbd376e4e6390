# test: every operation of the library, by the steps of crates/net/examples/operations
# versions: 2 3 4.0 4.1 4.2
# backends: local guest
# limit: 120
# takes: 10
# The ports that the server does not tell a port mapper about.
case $VERSION in
    2 | 3) ports="&mountport=$MOUNT_PORT" ;;
    *) ports= ;;
esac
# What the server lacks, with the error.
lacking=()
if [ -n "$ENFYS" ]; then
    case $VERSION in 2 | 3) ports+="&nlmport=$PORT" ;; esac
    # The file system of the export may have no shared extents.
    if on_host && ! host 'echo text >"$H/one"; cp --reflink=always "$H/one" "$H/two"'; then lacking+=(clone=EOPNOTSUPP); fi
    rm -f "$D/one" "$D/two"
elif [ -n "$KNFSD_ROOT" ]; then
    # ext4 has no shared extents.
    [ "$VERSION" != 4.2 ] || lacking+=(clone=EOPNOTSUPP)
else
    # NFS-Ganesha 4.3 with FSAL_VFS. It cannot decode the SETACL of version 3 that Linux's client and server use.
    case $VERSION in
        3) ports+="&nlmport=20049" lacking+=(set-acls=EPROTONOSUPPORT) ;;
        4.2) lacking+=(acls=EOPNOTSUPP xattrs=EOPNOTSUPP copy=EOPNOTSUPP clone=EOPNOTSUPP) ;;
        *) lacking+=(acls=EOPNOTSUPP) ;;
    esac
fi
"$OPERATIONS" "nfs://$SERVER:$PORT$(export_root)/export/$TEST?version=$VERSION$ports&uid=0&gid=0" "${lacking[@]}"
same '' "$(ls -A "$D")" 'what is left'
