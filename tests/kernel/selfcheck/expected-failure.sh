# test: (must fail) a case of a foreign suite is expected to fail, and passes
expected_failures() { printf '%s\n' unlink::open_file_not_freed utimensat::y2038 chmod::enoent_comp; }
. "$SCRIPTS/guest/pjdfstest.sh"
