//! XDR (RFC 4506): bounded reading and writing of bytes as values.
