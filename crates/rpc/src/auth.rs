//! Authentication flavors (RFC 5531 §8.2, §10, appendix A).
//!
//! A call has a credential (the identity) and a verifier (the proof), both opaque here. [`authenticate`] decodes the
//! credential into an [`Identity`], or returns the [`AuthStatus`] to reject the call with. Most calls of a connection have
//! the same credential as the previous one, so [`CredentialCache`] caches the decoded value of the last one.

use std::ops::Deref;

use xdr::{Decode, DecodeError, Encode, Opaque, Reader, Writer};

/// The maximum length in bytes of a credential's or verifier's body (RFC 5531 §8.2).
pub const MAX_AUTH_BODY: usize = 400;

/// The maximum length in bytes of AUTH_SYS's machine name (RFC 5531 appendix A).
pub const MAX_MACHINE_NAME: usize = 255;

/// The maximum number of supplementary groups in AUTH_SYS (RFC 5531 appendix A).
pub const MAX_GROUPS: usize = 16;

xdr::constants! {
    /// An authentication flavor (RFC 5531 §8.2 and the registry of §13.4.2).
    pub struct AuthFlavor: u32 {
        /// No identity.
        NONE = 0,
        /// User and group IDs, without proof.
        SYS = 1,
        /// A shorthand that a server gave for an earlier AUTH_SYS credential.
        SHORT = 2,
        /// Diffie-Hellman (RFC 2695), historic.
        DH = 3,
        /// Kerberos version 4 (RFC 2695), historic.
        KERB = 4,
        /// RSA, reserved and never specified.
        RSA = 5,
        /// GSS-API (RFC 2203, RFC 5403).
        RPCSEC_GSS = 6,
        /// The probe for RPC over TLS (RFC 9289 §4.1); only on NULL.
        TLS = 7,
    }
}

xdr::constants! {
    /// Why authentication failed (RFC 5531 §9, `auth_stat`).
    pub struct AuthStatus: u32 {
        /// It did not fail.
        OK = 0,
        /// Bad credential (seal broken).
        BADCRED = 1,
        /// The client must begin a new session.
        REJECTEDCRED = 2,
        /// Bad verifier (seal broken).
        BADVERF = 3,
        /// The verifier expired or was replayed.
        REJECTEDVERF = 4,
        /// Rejected for security reasons.
        TOOWEAK = 5,
        /// Bogus response verifier; only found locally.
        INVALIDRESP = 6,
        /// Reason unknown; only found locally.
        FAILED = 7,
        /// Kerberos error, deprecated.
        KERB_GENERIC = 8,
        /// Time of the credential expired, deprecated.
        TIMEEXPIRE = 9,
        /// Problem with the ticket file, deprecated.
        TKT_FILE = 10,
        /// The authenticator cannot be decoded, deprecated.
        DECODE = 11,
        /// Wrong network address in the ticket, deprecated.
        NET_ADDR = 12,
        /// No GSS credentials for the user.
        RPCSEC_GSS_CREDPROBLEM = 13,
        /// Problem with the GSS context.
        RPCSEC_GSS_CTXPROBLEM = 14,
    }
}

/// A credential or a verifier (RFC 5531 §8.2, `opaque_auth`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct OpaqueAuth {
    /// The format of `body`.
    pub flavor: AuthFlavor,
    /// The flavor's own data, undecoded.
    pub body: Opaque<MAX_AUTH_BODY>,
}

impl OpaqueAuth {
    /// AUTH_NONE with an empty body (RFC 5531 §10.1 recommends zero length).
    pub const NONE: Self = Self { flavor: AuthFlavor::NONE, body: Opaque::from_static(&[]) };

    /// Creates an AUTH_SYS credential.
    ///
    /// # Panics
    /// Never: the bounds of [`AuthSys`] keep its encoding (at most 340 bytes) below [`MAX_AUTH_BODY`].
    #[must_use]
    pub fn sys(credential: &AuthSys) -> Self {
        let body = Opaque::new(xdr::to_bytes(credential)).expect("AUTH_SYS fits its bound");
        Self { flavor: AuthFlavor::SYS, body }
    }

    /// Returns whether both are equal, apart from AUTH_SYS's stamp: RFC 5531 appendix A calls it "an arbitrary ID", and some
    /// clients put the time there.
    #[inline]
    fn same_caller(&self, flavor: AuthFlavor, body: &[u8]) -> bool {
        let stamp = if flavor == AuthFlavor::SYS { 4 } else { 0 };
        self.flavor == flavor
            && self.body.len() == body.len()
            && self.body.get(stamp..).is_some_and(|rest| rest == &body[stamp..])
    }
}

/// The body of an AUTH_SYS credential (RFC 5531 appendix A, `authsys_parms`), sent without proof.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct AuthSys {
    /// An arbitrary number chosen by the caller.
    pub stamp: u32,
    /// The caller's host name.
    pub machine_name: Opaque<MAX_MACHINE_NAME>,
    /// Effective user ID.
    pub uid: u32,
    /// Effective group ID.
    pub gid: u32,
    /// Supplementary group IDs.
    pub gids: GroupList,
}

/// At most [`MAX_GROUPS`] group IDs, stored inline.
#[derive(Clone, Copy, Default)]
pub struct GroupList {
    length: u8,
    gids: [u32; MAX_GROUPS],
}

impl GroupList {
    /// Copies `gids`.
    ///
    /// # Errors
    /// [`DecodeError::TooLong`] above [`MAX_GROUPS`].
    pub fn new(gids: &[u32]) -> Result<Self, DecodeError> {
        let mut list = Self::default();
        let target = list.gids.get_mut(..gids.len());
        target.ok_or(DecodeError::TooLong { length: gids.len(), max: MAX_GROUPS })?.copy_from_slice(gids);
        list.length = gids.len() as u8;
        Ok(list)
    }
}

impl Deref for GroupList {
    type Target = [u32];
    fn deref(&self) -> &[u32] {
        &self.gids[..usize::from(self.length)]
    }
}

impl PartialEq for GroupList {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for GroupList {}

impl std::fmt::Debug for GroupList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

impl Encode for GroupList {
    fn encode(&self, writer: &mut Writer) {
        writer.u32(u32::from(self.length));
        for gid in self.iter() {
            writer.u32(*gid);
        }
    }
}

impl Decode for GroupList {
    fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        let length = reader.length(MAX_GROUPS)?;
        let mut list = Self { length: length as u8, ..Self::default() };
        for gid in &mut list.gids[..length] {
            *gid = reader.u32()?;
        }
        Ok(list)
    }
}

/// The identity that a credential claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// AUTH_NONE: no identity.
    None,
    /// AUTH_SYS.
    Sys(AuthSys),
}

/// Decodes a call's credential.
///
/// # Errors
/// The status to reject the call with:
/// - `BADCRED` for an AUTH_SYS body that cannot be decoded or has trailing bytes, and for AUTH_TLS: a server that supports
///   the probe replies to it before it reads credentials.
/// - `REJECTEDCRED` for AUTH_SHORT, because no shorthand is ever issued, and for every unsupported flavor.
pub fn authenticate(credential: &OpaqueAuth) -> Result<Identity, AuthStatus> {
    match credential.flavor {
        AuthFlavor::NONE => Ok(Identity::None),
        AuthFlavor::SYS => match xdr::from_bytes(credential.body.bytes().clone()) {
            Ok(sys) => Ok(Identity::Sys(sys)),
            Err(_) => Err(AuthStatus::BADCRED),
        },
        // RFC 9289 §4.1: a server must reject AUTH_TLS in the wrong place "with a reject_stat of AUTH_ERROR and an auth_stat of
        // AUTH_BADCRED".
        AuthFlavor::TLS => Err(AuthStatus::BADCRED),
        // RFC 5531 appendix A on AUTH_SHORT: "The reason for the failure will be "AUTH_REJECTEDCRED"", after which the
        // client retries with its original credential. RFC 2203 §5.2.3.1 on an unknown flavor: "common
        // implementation practice appears to be to return a rejection status of AUTH_ERROR with an auth_stat of
        // AUTH_REJECTEDCRED".
        _ => Err(AuthStatus::REJECTEDCRED),
    }
}

/// Caches the value that was decoded from a connection's last credential. Copies the credential's bytes (at most
/// [`MAX_AUTH_BODY`]), so that the receive buffer can be freed.
#[derive(Debug)]
pub struct CredentialCache<T> {
    flavor: AuthFlavor,
    body: Vec<u8>,
    value: Option<T>,
}

impl<T> Default for CredentialCache<T> {
    fn default() -> Self {
        Self { flavor: AuthFlavor::NONE, body: Vec::new(), value: None }
    }
}

impl<T> CredentialCache<T> {
    /// Returns the value of `credential` if it equals the last one, apart from AUTH_SYS's stamp.
    #[inline]
    #[must_use]
    pub fn get(&self, credential: &OpaqueAuth) -> Option<&T> {
        let value = self.value.as_ref()?;
        credential.same_caller(self.flavor, &self.body).then_some(value)
    }

    /// Stores the value of `credential`, replacing the previous one.
    pub fn insert(&mut self, credential: &OpaqueAuth, value: T) -> &T {
        self.flavor = credential.flavor;
        self.body.clear();
        self.body.extend_from_slice(&credential.body);
        self.value.insert(value)
    }

    /// Removes the value, for instance after a configuration change.
    pub fn clear(&mut self) {
        self.value = None;
    }
}
