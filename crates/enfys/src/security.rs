//! Security flavors as people write them.

use server::{Flavor, Flavors};

/// Whether this program can take Kerberos.
const HAS_KERBEROS: bool = cfg!(feature = "krb5");

/// A list of flavors, the most preferred first.
///
/// # Errors
/// What is wrong with it: a name that is none, one twice, none at all, or one that this build cannot serve.
pub fn flavors<T: AsRef<str>>(names: &[T]) -> Result<Flavors, String> {
    let flavors: Vec<Flavor> = names.iter().map(|name| name.as_ref().parse()).collect::<Result<_, _>>()?;
    let kerberos = flavors.iter().find(|flavor| matches!(flavor, Flavor::Kerberos(_)));
    match kerberos {
        Some(flavor) if !HAS_KERBEROS => Err(format!(
            "`{flavor}` needs Kerberos, and this enfys is built without it: build it with `--features krb5`"
        )),
        _ => Flavors::new(&flavors).map_err(|error| error.to_string()),
    }
}

/// What a mount command must say to come in: nothing where AUTH_SYS leads there, which clients take by themselves.
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
    fn what_is_no_list_of_flavors_is_named() {
        assert_eq!(flavors(&["sys", "none"]).map(|list| list.to_string()), Ok("sys:none".into()));
        assert_eq!(flavors::<&str>(&[]), Err("expected at least one security flavor".into()));
        assert_eq!(flavors(&["sys", "sys"]), Err("`sys` stands there twice".into()));
        assert!(flavors(&["krb4"]).unwrap_err().contains("`krb4`"));
    }

    #[test]
    fn kerberos_is_for_builds_that_have_it() {
        match flavors(&["krb5p", "sys"]) {
            Ok(list) => assert!(HAS_KERBEROS && list.to_string() == "krb5p:sys"),
            Err(why) => assert!(!HAS_KERBEROS && why.contains("`krb5p`") && why.contains("--features krb5")),
        }
    }

    #[test]
    fn mount_commands_name_a_flavor_where_they_must() {
        let kerberos = Flavor::Kerberos(rpc::gss::Service::Integrity);
        let option = |list: &[Flavor]| mount_option(Flavors::new(list).unwrap());
        assert_eq!(option(&[kerberos, Flavor::Sys]), "");
        assert_eq!(option(&[kerberos]), ",sec=krb5i");
    }
}
