//! The durable record of a client.

use bytes::Bytes;
use xdr::{Decode, Encode, List, Opaque};

use super::super::client::{Client, ClientKind};
use super::super::file_key::FileKey;
use super::super::principal::Principal;
use super::super::wire::Verifier;
use crate::state::state_log::key;

/// Lost files listed in one record. A client that lost state on more files reclaims nothing.
const LOST_FILES_MAX: usize = 64;
/// Bytes of a GSS principal. A client with a longer one gets no record.
const PRINCIPAL_BYTES_MAX: usize = 4096;

/// The key of a record. Owner strings of version 4.0 and of later versions are separate name spaces.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Name {
    kind: ClientKind,
    owner: Bytes,
}

impl Name {
    pub(super) fn new(kind: ClientKind, owner: Bytes) -> Self {
        Self { kind, owner }
    }

    pub(super) fn of(client: &Client) -> Self {
        Self::new(ClientKind::of(client), client.owner().clone())
    }

    pub(super) fn owner(&self) -> &Bytes {
        &self.owner
    }

    pub(super) fn key(&self) -> Vec<u8> {
        let kind = match self.kind {
            ClientKind::V40 => 0,
            ClientKind::V41 => 1,
        };
        [&[key::CLIENT, kind], &self.owner[..]].concat()
    }

    /// Parses the key of a client record.
    pub(super) fn parse(key: &Bytes) -> Option<Self> {
        let (head, kind) = (*key.first()?, *key.get(1)?);
        let kind = match kind {
            0 => ClientKind::V40,
            1 => ClientKind::V41,
            _ => return None,
        };
        (head == key::CLIENT).then(|| Self { kind, owner: key.slice(2..) })
    }
}

/// A client that may hold state.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub(super) struct ClientRecord {
    /// Identifies the incarnation of the client. A later incarnation cannot reclaim.
    verifier: Verifier,
    principal: Recorded,
    lost: Lost,
}

/// A principal.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub(crate) enum Recorded {
    #[xdr(case = 0)]
    Anonymous,
    #[xdr(case = 1)]
    System(u32),
    #[xdr(case = 2)]
    Gss(Opaque<PRINCIPAL_BYTES_MAX>),
}

/// State that a client has lost and not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
enum Lost {
    /// State on these files.
    #[xdr(case = 0)]
    Files(List<LostFile, LOST_FILES_MAX>),
    /// State on more files than a record can list.
    #[xdr(case = 1)]
    Much,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
struct LostFile {
    fsid_major: u64,
    fsid_minor: u64,
    fileid: u64,
}

impl From<FileKey> for LostFile {
    fn from(file: FileKey) -> Self {
        Self { fsid_major: file.fsid.0, fsid_minor: file.fsid.1, fileid: file.fileid }
    }
}

impl Recorded {
    /// Returns `None` if the principal is too long.
    pub(crate) fn of(principal: &Principal) -> Option<Self> {
        Some(match principal {
            Principal::Anonymous => Self::Anonymous,
            Principal::System(uid) => Self::System(*uid),
            Principal::Gss(name) => Self::Gss(Opaque::new(name.clone()).ok()?),
        })
    }
}

impl From<Recorded> for Principal {
    fn from(recorded: Recorded) -> Self {
        match recorded {
            Recorded::Anonymous => Self::Anonymous,
            Recorded::System(uid) => Self::System(uid),
            Recorded::Gss(name) => Self::Gss(name.bytes().clone()),
        }
    }
}

impl ClientRecord {
    /// Returns a record without lost state; `None` if the principal is too long.
    pub(super) fn of(client: &Client) -> Option<Self> {
        let principal = Recorded::of(client.principal())?;
        Some(Self { verifier: *client.verifier(), principal, lost: Lost::Files(List::default()) })
    }

    /// Returns whether the record belongs to this principal.
    pub(super) fn is_by(&self, principal: &Principal) -> bool {
        Recorded::of(principal).as_ref() == Some(&self.principal)
    }

    /// Returns whether both records have the same principal.
    pub(super) fn same_principal(&self, other: &Self) -> bool {
        self.principal == other.principal
    }

    /// Returns whether both records are of the same incarnation.
    pub(super) fn same_incarnation(&self, other: &Self) -> bool {
        self.same_principal(other) && self.verifier == other.verifier
    }

    /// Notes lost state on a file. Returns whether the record changed.
    pub(super) fn lose(&mut self, file: FileKey) -> bool {
        let Lost::Files(files) = &self.lost else { return false };
        let file = file.into();
        if files.contains(&file) {
            return false;
        }
        let more: Vec<_> = files.iter().copied().chain([file]).collect();
        self.lost = List::new(more).map_or(Lost::Much, Lost::Files);
        true
    }

    /// Notes lost state on unknown files. Returns whether the record changed.
    pub(super) fn lose_all(&mut self) -> bool {
        std::mem::replace(&mut self.lost, Lost::Much) != Lost::Much
    }

    /// Notes that the client has acknowledged all losses. Returns whether the record changed.
    pub(super) fn acknowledge(&mut self) -> bool {
        std::mem::replace(&mut self.lost, Lost::Files(List::default())) != self.lost
    }

    /// Notes that the client has acknowledged the losses on a file, or all with `all`. Returns whether the record changed.
    pub(super) fn acknowledge_file(&mut self, file: FileKey, all: bool) -> bool {
        let Lost::Files(files) = &self.lost else { return all && self.acknowledge() };
        let file = file.into();
        let left: Vec<_> = files.iter().copied().filter(|lost| *lost != file).collect();
        let is_changed = left.len() < files.len();
        self.lost = Lost::Files(List::new(left).unwrap_or_default());
        is_changed
    }

    /// Returns whether the client may reclaim state on a file.
    pub(super) fn may_reclaim(&self, file: FileKey) -> bool {
        let Lost::Files(files) = &self.lost else { return false };
        let file = file.into();
        !files.contains(&file)
    }

    /// Returns whether it may reclaim anything.
    pub(super) fn may_reclaim_any(&self) -> bool {
        matches!(self.lost, Lost::Files(_))
    }
}
