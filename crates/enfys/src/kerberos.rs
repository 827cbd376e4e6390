//! Kerberos as this server has it: keys of its own, and the users that principals are.

use std::sync::Arc;

use server::gss::Mechanism;

use crate::plan::Plan;

/// What proves who calls, where an export asks for it.
///
/// # Errors
/// One line that says why it cannot be had.
pub fn mechanism(plan: &Plan) -> Result<Option<Arc<dyn Mechanism>>, String> {
    if plan.wants_kerberos() { load(plan).map(Some) } else { Ok(None) }
}

/// The service that clients ask for tickets of: RFC 2623 §3.2, RFC 8881 §2.2.1.1.1.1.1 ("nfs").
#[cfg(feature = "krb5")]
const SERVICE: &str = "nfs";

#[cfg(feature = "krb5")]
fn load(plan: &Plan) -> Result<Arc<dyn Mechanism>, String> {
    let users = Arc::new(crate::principals::Principals::default());
    let kerberos =
        net::kerberos::Kerberos::new(SERVICE, plan.keytab.as_deref(), users, localfs::become_server)?;
    Ok(Arc::new(kerberos))
}

#[cfg(not(feature = "krb5"))]
fn load(_: &Plan) -> Result<Arc<dyn Mechanism>, String> {
    Err("Kerberos: this enfys is built without it: build it with `--features krb5`".into())
}
