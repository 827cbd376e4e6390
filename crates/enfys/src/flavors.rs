//! Security flavors in options and mount commands.

use server::{Flavor, Flavors};

/// Whether this build has Kerberos.
const HAS_KERBEROS: bool = cfg!(feature = "krb5");

/// Parses a list of flavors, the most preferred first.
///
/// # Errors
/// The error: an unknown name, a repeated one, an empty list, or a flavor that this build does not have.
pub fn parse<T: AsRef<str>>(names: &[T]) -> Result<Flavors, String> {
    let flavors: Vec<Flavor> = names.iter().map(|name| name.as_ref().parse()).collect::<Result<_, _>>()?;
    let kerberos = flavors.iter().find(|flavor| matches!(flavor, Flavor::Kerberos(_)));
    match kerberos {
        Some(flavor) if !HAS_KERBEROS => Err(format!(
            "`{flavor}` needs Kerberos, and this enfys was built without it: build it with `--features krb5`"
        )),
        _ => Flavors::new(&flavors).map_err(|error| error.to_string()),
    }
}

/// Returns the `sec` option that a mount command needs; empty if AUTH_SYS, the default of clients, is allowed.
pub fn mount_option(flavors: Flavors) -> String {
    match flavors.iter().next() {
        Some(preferred) if !flavors.allow(Flavor::Sys) => format!(",sec={preferred}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_list_of_flavors_is_named() {
        assert_eq!(parse(&["sys", "none"]).map(|list| list.to_string()), Ok("sys:none".into()));
        assert_eq!(parse::<&str>(&[]), Err("expected at least one security flavor".into()));
        assert_eq!(parse(&["sys", "sys"]), Err("`sys` is listed twice".into()));
        assert!(parse(&["krb4"]).unwrap_err().contains("`krb4`"));
    }

    #[test]
    fn kerberos_needs_a_build_with_it() {
        match parse(&["krb5p", "sys"]) {
            Ok(list) => assert!(HAS_KERBEROS && list.to_string() == "krb5p:sys"),
            Err(why) => assert!(!HAS_KERBEROS && why.contains("`krb5p`") && why.contains("--features krb5")),
        }
    }

    #[test]
    fn mount_commands_name_a_flavor_if_needed() {
        let kerberos = Flavor::Kerberos(rpc::gss::Service::Integrity);
        let option = |list: &[Flavor]| mount_option(Flavors::new(list).unwrap());
        assert_eq!(option(&[kerberos, Flavor::Sys]), "");
        assert_eq!(option(&[kerberos]), ",sec=krb5i");
    }
}
