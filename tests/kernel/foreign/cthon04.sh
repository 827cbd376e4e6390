# test: cthon04 (Connectathon's basic, general, special and lock tests), built in the directory that --suite names
# versions: 2 3 4.0 4.1 4.2
# limit: 600
cd "$SUITE_DIR"
# `-t` is the longer form of each test.
# Files of version 2 end at 4 GiB, and its locks have 32 bits: the suite asks the options of the mount.
MNTOPTIONS=vers=$VERSION NFSTESTDIR=$D/cthon ./runtests -a -t
