# test: the server applies the umask, and an inherited ACL takes precedence
# versions: 4.2
made() { # MASK KIND: the mode of a new object
    rm -rf "$D/new"
    case $2 in
        file) (umask "$1"; : >"$D/new") ;;
        exclusive) (umask "$1"; set -C; : >"$D/new") ;;
        directory) (umask "$1"; mkdir "$D/new") ;;
        fifo) (umask "$1"; mkfifo "$D/new") ;;
    esac
    stat -c %a "$D/new"
}
for kind in file exclusive fifo; do
    same 644 "$(made 022 $kind)" "$kind"
    same 640 "$(made 027 $kind)" "$kind"
    same 666 "$(made 000 $kind)" "$kind"
done
same 750 "$(made 027 directory)"
if on_host && host 'setfacl -d -m u:1234:rw "$H"'; then
    # RFC 8275: with something to inherit, only the mode limits it.
    for kind in file exclusive; do
        same 664 "$(made 077 $kind)" "$kind with an inherited ACL"
        host 'getfacl -c "$H/new"' | grep -qx 'user:1234:rw-' || fail "$kind: the ACL was not inherited"
    done
fi
