//! The space of a file system, and the caller's quota there.

use protocol::nfs4::types::Bitmap;
use vfs::{Attributes, QuotaKind};

use super::attributes::{Space, needs_quota};
use super::compound::Compound;
use super::status::Result;
use crate::files::object::File;

impl Compound<'_> {
    /// Fetches the space of an object's file system, with the caller's quota if `mask` needs it, and the attributes of the object.
    pub(crate) async fn space_of(&self, file: &File<'_>, mask: Bitmap) -> Result<(Space, Attributes)> {
        let (context, backend) = (self.context(file.export), &file.export.backend);
        let (of_all, attributes) = backend.statfs(&context, &file.handle).await?;
        let quota = match needs_quota(mask) && backend.properties().quotas {
            // Without an answer the attributes are missing, as without a quota.
            true => backend.quota(QuotaKind::User, context.credentials.uid).await.unwrap_or_default(),
            false => None,
        };
        Ok((Space { of_all, quota }, attributes))
    }
}
