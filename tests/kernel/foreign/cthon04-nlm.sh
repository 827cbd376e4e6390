# test: lock tests of cthon04 (Connectathon) with NLM, built in the directory that --suite names
# versions: 3
# limit: 300
mount_locking /run/nlm
cd "$SUITE_DIR"
mkdir "$D/cthon-nlm"
NFSTESTDIR=/run/nlm/${D##*/}/cthon-nlm ./runtests -l -t
umount /run/nlm
