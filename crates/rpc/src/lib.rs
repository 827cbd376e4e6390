//! ONC RPC version 2 (RFC 5531): messages, record marking and authentication flavors, without sockets.
