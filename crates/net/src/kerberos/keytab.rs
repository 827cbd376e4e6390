//! Sets the library's key table, by its one function without a safe binding.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

unsafe extern "C" {
    /// `gssapi_krb5.h` of MIT's library: sets the key table of acceptors, in all threads. It copies the name.
    fn krb5_gss_register_acceptor_identity(keytab: *const c_char) -> u32;
}

/// Sets the key table to the file `path`.
///
/// # Errors
/// Returns one line if the file cannot be read, or the library refuses it.
pub(super) fn choose(path: &Path) -> Result<(), String> {
    let refused = |why: &dyn std::fmt::Display| format!("key table `{}`: {why}", path.display());
    // The library itself would only report a missing key.
    std::fs::File::open(path).map_err(|error| refused(&error))?;
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| refused(&error))?;
    // SAFETY: `name` is a string that ends in a zero byte and lives until the call returns; the function keeps a copy, under a lock of
    // its own.
    let status = unsafe { krb5_gss_register_acceptor_identity(name.as_ptr()) };
    if status == 0 { Ok(()) } else { Err(refused(&format!("GSS status {status:#x}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_named() {
        let error = choose(Path::new("/nonexistent/enfys.keytab")).unwrap_err();
        assert!(error.starts_with("key table `/nonexistent/enfys.keytab`: "), "{error}");
    }

    #[test]
    fn takes_an_existing_file() {
        assert_eq!(choose(Path::new("/dev/null")), Ok(()));
    }
}
