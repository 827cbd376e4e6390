//! Kerberos: the server's keys, and the users of principals.

use std::sync::Arc;

use server::gss::Mechanism;

use crate::plan::Plan;

/// Loads Kerberos if an export allows it.
///
/// # Errors
/// One line: no usable keys, or this build has no Kerberos.
pub fn mechanism(plan: &Plan) -> Result<Option<Arc<dyn Mechanism>>, String> {
    if plan.wants_kerberos() { load(plan).map(Some) } else { Ok(None) }
}

/// The service name in the server's principal: RFC 2623 §3.2, RFC 8881 §2.2.1.1.1.1.1 ("nfs").
#[cfg(feature = "krb5")]
const SERVICE: &str = "nfs";

#[cfg(feature = "krb5")]
fn load(plan: &Plan) -> Result<Arc<dyn Mechanism>, String> {
    let users = Arc::new(crate::name_services::principals::Principals::default());
    let kerberos =
        net::kerberos::Kerberos::new(SERVICE, plan.keytab.as_deref(), users, localfs::become_server)?;
    Ok(Arc::new(kerberos))
}

#[cfg(not(feature = "krb5"))]
fn load(_: &Plan) -> Result<Arc<dyn Mechanism>, String> {
    Err("Kerberos: this enfys was built without it: build it with `--features krb5`".into())
}
