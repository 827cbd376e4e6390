//! Authentication flavors (RFC 5531 §8.2, §10, appendix A).
//!
//! A call carries a credential (who) and a verifier (proof), both opaque here. [`authenticate`] turns the credential
//! into an [`Identity`], or into the [`AuthStatus`] that the caller must be told. Most calls of a connection carry the same
//! bytes as the one before: [`CredentialCache`] finds what was made of them by one comparison.

use std::ops::Deref;

use xdr::{Decode, DecodeError, Encode, Opaque, Reader, Writer};

/// The greatest length in bytes of a credential's or verifier's body (RFC 5531 §8.2).
pub const MAX_AUTH_BODY: usize = 400;

/// The greatest length in bytes of AUTH_SYS's machine name (RFC 5531 appendix A).
pub const MAX_MACHINE_NAME: usize = 255;

/// The greatest number of supplementary groups in AUTH_SYS (RFC 5531 appendix A).
pub const MAX_GROUPS: usize = 16;

xdr::constants! {
    /// How a caller shows who it is (RFC 5531 §8.2 and the registry of §13.4.2).
    pub struct AuthFlavor: u32 {
        /// Nobody in particular.
        NONE = 0,
        /// User and group numbers, unproven.
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
    /// Why a caller was not believed (RFC 5531 §9, `auth_stat`).
    pub struct AuthStatus: u32 {
        /// It was.
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

/// A credential or a verifier as it stands in a message (RFC 5531 §8.2, `opaque_auth`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct OpaqueAuth {
    /// How to read `body`.
    pub flavor: AuthFlavor,
    /// The flavor's own data, undecoded.
    pub body: Opaque<MAX_AUTH_BODY>,
}

impl OpaqueAuth {
    /// AUTH_NONE with an empty body (RFC 5531 §10.1 recommends zero length).
    pub const NONE: Self = Self { flavor: AuthFlavor::NONE, body: Opaque::from_static(&[]) };

    /// An AUTH_SYS credential.
    ///
    /// # Panics
    /// Never: the bounds of [`AuthSys`] keep its encoding (at most 340 bytes) below [`MAX_AUTH_BODY`].
    #[must_use]
    pub fn sys(credential: &AuthSys) -> Self {
        let body = Opaque::new(xdr::to_bytes(credential)).expect("AUTH_SYS fits its bound");
        Self { flavor: AuthFlavor::SYS, body }
    }

    /// Whether both name the same caller by the same bytes. AUTH_SYS's stamp does not count: RFC 5531 appendix A calls
    /// it "an arbitrary ID", and some clients fill in the time.
    #[inline]
    fn same_caller(&self, flavor: AuthFlavor, body: &[u8]) -> bool {
        let stamp = if flavor == AuthFlavor::SYS { 4 } else { 0 };
        self.flavor == flavor
            && self.body.len() == body.len()
            && self.body.get(stamp..).is_some_and(|rest| rest == &body[stamp..])
    }
}

/// The body of an AUTH_SYS credential (RFC 5531 appendix A, `authsys_parms`). Nothing in it is proven.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct AuthSys {
    /// An arbitrary number of the caller's.
    pub stamp: u32,
    /// What the caller calls its machine.
    pub machine_name: Opaque<MAX_MACHINE_NAME>,
    /// Effective user number.
    pub uid: u32,
    /// Effective group number.
    pub gid: u32,
    /// Supplementary groups.
    pub gids: GroupList,
}

/// At most [`MAX_GROUPS`] group numbers, kept in place.
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

/// Who calls, as far as the credential says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// AUTH_NONE: nobody in particular.
    None,
    /// AUTH_SYS.
    Sys(AuthSys),
}

/// Reads a call's credential.
///
/// # Errors
/// The status to reject the call with:
/// - `BADCRED` for an AUTH_SYS body that cannot be decoded or is followed by more bytes, and for AUTH_TLS: the probe is
///   answered, if at all, before credentials are looked at.
/// - `REJECTEDCRED` for AUTH_SHORT, as we never hand out a shorthand, and for every flavor that is not served.
pub fn authenticate(credential: &OpaqueAuth) -> Result<Identity, AuthStatus> {
    match credential.flavor {
        AuthFlavor::NONE => Ok(Identity::None),
        AuthFlavor::SYS => match xdr::from_bytes(credential.body.bytes().clone()) {
            Ok(sys) => Ok(Identity::Sys(sys)),
            Err(_) => Err(AuthStatus::BADCRED),
        },
        // RFC 9289 §4.1: a server must reject AUTH_TLS out of place "with a reject_stat of AUTH_ERROR and an auth_stat of
        // AUTH_BADCRED".
        AuthFlavor::TLS => Err(AuthStatus::BADCRED),
        // RFC 5531 appendix A on AUTH_SHORT: "The reason for the failure will be "AUTH_REJECTEDCRED"", upon which the
        // client tries its original credential. RFC 2203 §5.2.3.1 on a flavor that the server does not know: "common
        // implementation practice appears to be to return a rejection status of AUTH_ERROR with an auth_stat of
        // AUTH_REJECTEDCRED".
        _ => Err(AuthStatus::REJECTEDCRED),
    }
}

/// What was made of the latest credential of a connection. Keeps a copy of the credential's bytes (at most
/// [`MAX_AUTH_BODY`]), never the receive buffer they came in.
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
    /// What was made of these very bytes (AUTH_SYS's stamp aside), if they were the latest.
    #[inline]
    #[must_use]
    pub fn get(&self, credential: &OpaqueAuth) -> Option<&T> {
        let value = self.value.as_ref()?;
        credential.same_caller(self.flavor, &self.body).then_some(value)
    }

    /// Remembers `value` for `credential`, in place of what was remembered.
    pub fn insert(&mut self, credential: &OpaqueAuth, value: T) -> &T {
        self.flavor = credential.flavor;
        self.body.clear();
        self.body.extend_from_slice(&credential.body);
        self.value.insert(value)
    }

    /// Forgets: after the configuration that values were made with has changed.
    pub fn clear(&mut self) {
        self.value = None;
    }
}
