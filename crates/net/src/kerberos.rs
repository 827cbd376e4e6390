//! Kerberos version 5 for RPCSEC_GSS, by the system's GSS library (RFC 4121).
//!
//! It implements [`server::gss::Mechanism`]. Context tokens are processed on the blocking pool, since that reads the key table and the
//! replay cache, and looks up the user. Everything else is computed in place.

mod keytab;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use libgssapi::context::{SecurityContext as _, ServerCtx};
use libgssapi::credential::{Cred, CredUsage};
use libgssapi::error::Error;
use libgssapi::name::Name;
use libgssapi::oid::{GSS_MECH_KRB5, GSS_NT_HOSTBASED_SERVICE, OidSet};
use rpc::gss::GSS_S_FAILURE;
use server::gss::{
    Accepting, Acceptor, BadMessage, Established, GssStatus, Mechanism, SecurityContext, Step,
};
use tokio::sync::Semaphore;
use vfs::Credentials;

/// Maximum number of tokens in process at once.
const ACCEPTED_AT_ONCE: usize = 16;

/// Bits of a status that mean failure (RFC 2744 §3.9.1); the lower ones are informational.
const ERROR_BITS: u32 = 0xffff_0000;

/// Maps principals to users.
pub trait Users: fmt::Debug + Send + Sync {
    /// Returns the user of this name, if there is one. May block on a name service.
    ///
    /// # Errors
    /// [`Unavailable`] if the name services fail: the context is not created, and the client may try again.
    fn find(&self, name: &str) -> Result<Option<Credentials>, Unavailable>;
}

/// Name services do not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unavailable;

/// The keys of a service, and the users of its callers.
#[derive(Debug)]
pub struct Kerberos {
    keys: Arc<Keys>,
}

#[derive(Debug)]
struct Keys {
    credential: Cred,
    users: Arc<dyn Users>,
    /// See [`Kerberos::new`].
    become_server: fn(),
    turns: Arc<Semaphore>,
}

impl Kerberos {
    /// Loads the keys of `service` (`nfs` or `nfs@host.example`) from `keytab`, or from the key table of the library's configuration.
    /// A thread that processes a token calls `become_server` first: it may have acted as a caller in the file system, who cannot read
    /// the key table.
    ///
    /// # Errors
    /// Returns one line with the reason.
    pub fn new(
        service: &str,
        keytab: Option<&Path>,
        users: Arc<dyn Users>,
        become_server: fn(),
    ) -> Result<Self, String> {
        if let Some(path) = keytab {
            keytab::choose(path)?;
        }
        let explain = |error: Error| format!("no Kerberos keys of `{service}`: {error}");
        let name = Name::new(service.as_bytes(), Some(GSS_NT_HOSTBASED_SERVICE)).map_err(explain)?;
        let kerberos = OidSet::singleton(GSS_MECH_KRB5).map_err(explain)?;
        let credential =
            Cred::acquire(Some(&name), None, CredUsage::Accept, Some(&kerberos)).map_err(explain)?;
        let turns = Arc::new(Semaphore::new(ACCEPTED_AT_ONCE));
        Ok(Self { keys: Arc::new(Keys { credential, users, become_server, turns }) })
    }
}

impl Mechanism for Kerberos {
    fn acceptor(&self) -> Box<dyn Acceptor> {
        let context = ServerCtx::new(Some(self.keys.credential.clone()));
        Box::new(Accept { context, keys: Arc::clone(&self.keys) })
    }
}

/// A context in creation.
#[derive(Debug)]
struct Accept {
    context: ServerCtx,
    keys: Arc<Keys>,
}

impl Acceptor for Accept {
    fn accept(self: Box<Self>, token: Bytes) -> Accepting {
        Box::pin(async move {
            let failed = Step::Failed(GssStatus { major: GSS_S_FAILURE, minor: 0 });
            let Ok(_turn) = Arc::clone(&self.keys.turns).acquire_owned().await else { return failed };
            tokio::task::spawn_blocking(move || self.step(&token)).await.unwrap_or(failed)
        })
    }
}

impl Accept {
    fn step(mut self: Box<Self>, token: &[u8]) -> Step {
        (self.keys.become_server)();
        match self.context.step(token, None) {
            Err(error) => Step::Failed(status(error)),
            Ok(token) => {
                let token = token.map_or_else(Bytes::new, |token| Bytes::copy_from_slice(&token));
                if !self.context.is_complete() {
                    return Step::Continue { acceptor: self, token };
                }
                match (*self).establish() {
                    Ok(established) => Step::Complete { established, token },
                    Err(error) => Step::Failed(error),
                }
            }
        }
    }

    fn establish(self) -> Result<Established, GssStatus> {
        let users = Arc::clone(&self.keys.users);
        let (established, user) = self.name().map_err(status)?;
        let found = user.map_or(Ok(None), |user| users.find(&user));
        let unavailable = |Unavailable| GssStatus { major: GSS_S_FAILURE, minor: 0 };
        Ok(Established { credentials: found.map_err(unavailable)?.map(Arc::new), ..established })
    }

    /// Returns the context, and its principal's user name by `auth_to_local` of krb5.conf(5), if there is one: by default that of
    /// `user@REALM` in the default realm. A machine (`nfs/host`, `host/host`) has no user, as in Linux's server.
    fn name(mut self) -> Result<(Established, Option<String>), Error> {
        // The server does not use delegated credentials.
        drop(self.context.take_delegated_cred());
        let principal = self.context.source_name()?;
        let name = String::from_utf8_lossy(&principal.display_name()?).into_owned();
        let exported = Bytes::copy_from_slice(&principal.export()?);
        let lifetime = Some(self.context.lifetime()?);
        let user = principal.local_name(Some(GSS_MECH_KRB5)).ok();
        let user = user.and_then(|user| String::from_utf8(user.to_vec()).ok());
        let context = Box::new(Context(self.context));
        Ok((Established { context, name, exported, credentials: None, lifetime }, user))
    }
}

/// An established context.
#[derive(Debug)]
struct Context(ServerCtx);

impl SecurityContext for Context {
    fn verify_mic(&mut self, message: &[u8], checksum: &[u8]) -> Result<(), BadMessage> {
        match self.0.verify_mic(message, checksum) {
            // RFC 2203 §5.2.2: clients do not ask for sequence checks. If one does, the checksum is still valid.
            Err(error) if error.major.bits() & ERROR_BITS != 0 => Err(BadMessage),
            _ => Ok(()),
        }
    }

    fn get_mic(&mut self, message: &[u8]) -> Result<Bytes, BadMessage> {
        owned(self.0.get_mic(message))
    }

    fn wrap(&mut self, message: &[u8]) -> Result<Bytes, BadMessage> {
        owned(self.0.wrap(true, message))
    }

    fn unwrap(&mut self, token: &[u8]) -> Result<Bytes, BadMessage> {
        if !is_sealed(token) {
            return Err(BadMessage);
        }
        owned(self.0.unwrap(token))
    }
}

fn owned(answer: Result<impl std::ops::Deref<Target = [u8]>, Error>) -> Result<Bytes, BadMessage> {
    answer.map(|bytes| Bytes::copy_from_slice(&bytes)).map_err(|_| BadMessage)
}

/// Returns whether a token of `GSS_Wrap` is encrypted: `GSS_Unwrap` takes one that only has a checksum as well. RFC 4121
/// §4.2.6.2: TOK_ID is 05 04, and after it in the flags, §4.2.2, bit 1, "Sealed". Tokens of RFC 1964 are refused: their ciphers
/// are deprecated (RFC 8429).
fn is_sealed(token: &[u8]) -> bool {
    const TOK_ID: [u8; 2] = [0x05, 0x04];
    const SEALED: u8 = 0x02;
    matches!(token, [a, b, flags, ..] if [*a, *b] == TOK_ID && flags & SEALED != 0)
}

fn status(error: Error) -> GssStatus {
    let major = error.major.bits() & ERROR_BITS;
    GssStatus { major: if major == 0 { GSS_S_FAILURE } else { major }, minor: error.minor }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_encrypted_tokens_from_others() {
        // RFC 4121 §4.2.6.2, with filler, EC, RRC and a sequence number after the flags.
        let token = |flags| [&[0x05, 0x04, flags, 0xff, 0, 0, 0, 0][..], &[0; 24]].concat();
        assert!(is_sealed(&token(0x02)) && is_sealed(&token(0x07)));
        assert!(!is_sealed(&token(0x00)) && !is_sealed(&token(0x05)));
        // A MIC token, and one of RFC 1964.
        assert!(!is_sealed(&[0x04, 0x04, 0x02]) && !is_sealed(&[0x60, 0x04, 0x02]) && !is_sealed(&[]));
    }

    #[test]
    fn reports_a_missing_key_table() {
        #[derive(Debug)]
        struct NoUsers;
        impl Users for NoUsers {
            fn find(&self, _: &str) -> Result<Option<Credentials>, Unavailable> {
                Ok(None)
            }
        }
        let missing = Path::new("/nonexistent/enfys.keytab");
        let error = Kerberos::new("nfs", Some(missing), Arc::new(NoUsers), || {}).unwrap_err();
        assert!(error.contains("/nonexistent/enfys.keytab"), "{error}");
    }
}
