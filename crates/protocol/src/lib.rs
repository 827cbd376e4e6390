//! Wire types of portmap, MOUNT and NFS versions 3 to 4.2, without behaviour.
